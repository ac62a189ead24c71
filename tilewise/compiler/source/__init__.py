"""CUDA C++ as text: its declarations, its kernels, and the part of a file that one kernel needs.

Nothing here compiles. The text is parsed by tree-sitter with its grammar of CUDA, which reads what
a compiler would refuse, and says where each declaration begins and ends.
"""
