"""Checks of the accesses: reads of memory that nobody wrote, races, happens-before."""
