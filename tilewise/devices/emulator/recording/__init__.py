"""What the blocks of a launch do, instruction by instruction, recorded to be shown."""
