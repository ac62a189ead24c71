"""From a PTX instruction to what a machine runs for it; what moves and steers is here itself."""
