"""Exercises: kernels to complete or to debug, and their grading on the emulator."""
