"""The commands of the command line: each function is a command, with its options.

A command imports what compiles, emulates and multiplies only when it runs, so that ``--help`` and
``--version`` answer at once, and ``doctor`` works if a package is missing.
"""
