"""Asynchronous copies: ``cp.async``, bulk copies, and tensor copies by tensor maps."""
