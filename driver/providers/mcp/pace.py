"""How much of the daemon's time a server gets that talks without being asked.

Part of `driver.providers.mcp`; imports nothing of ours. Everything else in the daemon runs in the same event
loop: what a server says is looked at in turns, and where it goes on and on, in turns with a rest between.
"""

from typing import Final

import anyio

UNIT_BYTES: Final = 1_024
"""A message counts as one, and as one more for each of these."""
TURN_UNITS: Final = 32
"""What is looked at before others get their turn: about a millisecond."""
FREE_UNITS: Final = 1_000
"""What a server may say between two answers at full speed: progress, log messages."""
REST_S: Final = 0.01
"""The rest after each turn beyond that: some 3,000 messages or 3 MB a second, a tenth of one core."""


class Pace:
    """One server's share."""

    def __init__(self) -> None:
        self._turn = 0
        self._unasked = 0

    def answered(self) -> None:
        """Take note that it said something that was asked for."""
        self._unasked = 0

    async def said(self, size: int) -> None:
        """Take note of a message of `size` bytes, and let others run when the turn is over."""
        units = 1 + size // UNIT_BYTES
        self._turn += units
        self._unasked += units
        if self._turn < TURN_UNITS:
            return
        rest_s = REST_S * self._turn / TURN_UNITS if self._unasked > FREE_UNITS else 0.0
        self._turn = 0
        await anyio.sleep(rest_s)
