"""Define the launches of public projects' kernels, and their expected results."""
