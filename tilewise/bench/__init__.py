"""Measure the speed of ``tilewise.matmul``: products, a rival, ceilings, a figure."""
