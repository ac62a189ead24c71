"""What the command line can do: each function is a command, with its options.

What compiles, emulates and multiplies is imported by the command that does it: ``--help`` and
``--version`` answer at once, and ``doctor`` answers where a package is missing.
"""
