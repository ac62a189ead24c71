"""Multiply small matrices as the tensor cores do, by a warp or by a warpgroup."""
