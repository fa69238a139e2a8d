"""How many requests a socket takes: so many a second in the long run, and a burst of them at once.

Part of `driver.local`, pure: told the time. One bucket for each socket, so that whoever may only read cannot
keep the operator out.
"""

import math


class Bucket:
    """Tokens that come back at a steady rate, up to a burst; each request takes one."""

    def __init__(self, *, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = float(burst)
        self._at: float | None = None

    def take(self, now: float) -> int | None:
        """Take a token, at `now` in seconds of a monotonic clock.

        Returns None where there is one, else after how many whole seconds there will be.
        """
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_s)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return None
        return max(1, math.ceil((1 - self._tokens) / self._per_s))
