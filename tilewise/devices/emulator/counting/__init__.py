"""Count as the hardware does: sectors, wavefronts, and accesses joined as ptxas joins them."""
