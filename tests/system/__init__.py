"""The daemon as a whole, on real processes: what survives a kill, a cut, a lost disk, and bad input."""
