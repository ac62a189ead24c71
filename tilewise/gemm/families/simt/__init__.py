"""Products of float32 and float64 by tiles, of any layout."""
