"""The loads and stores of one instruction in each state space, checked and counted."""
