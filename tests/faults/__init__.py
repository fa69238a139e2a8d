"""Lanes that try to break every promise, each with a count, a seed, and a look whether its faults fired."""
