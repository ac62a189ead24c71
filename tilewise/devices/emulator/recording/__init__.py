"""Record what the blocks of a launch do, instruction by instruction, to show it."""
