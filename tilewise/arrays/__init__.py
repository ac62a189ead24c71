"""The arrays of the supported libraries, and the checks of the calls that take them."""
