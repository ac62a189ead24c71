"""The threads that run: sets of lanes, their registers, the instruction they run, its faults."""
