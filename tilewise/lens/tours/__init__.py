"""Guided tours of a recorded launch: where to stop, what to say there and what to ask."""
