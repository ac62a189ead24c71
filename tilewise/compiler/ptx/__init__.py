"""PTX that a caller gives: its text cut into functions, its parameters, its machine code."""
