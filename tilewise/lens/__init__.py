"""Views of what a kernel does: counters, occupancy, tiles, the roofline, Nsight Compute."""
