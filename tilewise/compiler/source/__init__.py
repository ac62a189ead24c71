"""CUDA C++ as text: its declarations, its kernels, and the part of a file that a kernel needs.

Nothing is compiled here. tree-sitter parses the text with its grammar of CUDA, which also reads
what a compiler would refuse, and gives the beginning and the end of each declaration.
"""
