"""How long to wait before the next try to connect.

Part of `driver.core`, pure: chance arrives as an argument. Full jitter, so that the daemons of a whole fleet
that lost their plane in one moment do not all come back in one moment (docs/protocol.md, section 1).
"""

from typing import Final

FLOOR_S: Final = 0.2
"""No wait is shorter (docs/protocol.md, section 1)."""
CEILING_S: Final = 30.0
"""No wait is longer (docs/protocol.md, section 1)."""

_DOUBLINGS_MAX: Final = 16
"""Far beyond the ceiling already; keeps the power a small number after months of failures."""


def delay_s(failures: int, chance: float) -> float:
    """Return the seconds to wait after `failures` (≥ 1) tries in a row that came to nothing.

    `chance` is uniform in [0, 1). The wait is uniform between the floor and a bound that doubles up to the
    ceiling.
    """
    bound = min(CEILING_S, FLOOR_S * float(1 << min(failures, _DOUBLINGS_MAX)))
    return FLOOR_S + chance * (bound - FLOOR_S)


def ceiling_delay_s(chance: float) -> float:
    """Return the seconds to wait where trying again soon cannot help: the upper half up to the ceiling."""
    return CEILING_S * (1 + chance) / 2
