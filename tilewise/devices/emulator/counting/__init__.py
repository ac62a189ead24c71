"""Counters as the hardware has them: sectors, wavefronts, and accesses joined as by ptxas."""
