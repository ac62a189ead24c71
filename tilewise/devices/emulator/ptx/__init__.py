"""PTX as data: its text parsed into instructions, and a kernel and its functions linked."""
