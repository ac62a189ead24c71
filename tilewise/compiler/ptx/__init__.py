"""PTX that a caller gives: its functions, its parameters, its machine code."""
