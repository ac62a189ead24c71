"""Exercises: kernels to complete or to mend, and what grades them on the emulator."""
