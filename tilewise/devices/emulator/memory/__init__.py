"""Global, shared and local memory, and the image of it that a launch begins with."""
