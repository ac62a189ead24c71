"""Loads and stores of one instruction: its addresses, in each state space, checked and counted."""
