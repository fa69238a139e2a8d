"""What the machines of this lane count: the examples that were played to their end, and the states they saw."""

from collections import Counter

SEEN: Counter[str] = Counter()
"""States that were reached, by name; emptied by whoever begins to count."""
ENDED: Counter[str] = Counter()
"""Examples, by machine."""
