"""Products on a device: what is asked, and by which launches it is answered."""
