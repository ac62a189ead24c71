"""The checks of accesses: reads of uninitialised memory, races, happens-before."""
