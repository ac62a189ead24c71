"""Represent PTX as data: parse it into instructions, and link a kernel with its functions."""
