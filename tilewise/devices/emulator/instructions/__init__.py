"""What a machine runs for each PTX instruction; some of them have a room of their own."""
