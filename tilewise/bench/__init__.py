"""How fast ``tilewise.matmul`` is: products to time, a rival beside it, ceilings, a figure."""
