"""Build what a machine runs for each PTX instruction; some have a room of their own."""
