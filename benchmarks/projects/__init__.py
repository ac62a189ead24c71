"""What is launched of public projects, and what should come of it."""
