"""Products on a device: the description of a product, and the plan of launches that computes it."""
