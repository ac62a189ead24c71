"""Products of float32 and float64 in tiles, in any layout."""
