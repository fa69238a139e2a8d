"""What the machines of this lane count: examples that were played to their end, and states that they saw."""

from collections import Counter

SEEN: Counter[str] = Counter()
"""States that were reached, by name; emptied by whoever begins to count."""
ENDED: Counter[str] = Counter()
"""Examples, by machine."""
