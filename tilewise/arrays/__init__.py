"""The arrays of the libraries, and the calls that are made with them."""
