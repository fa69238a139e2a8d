"""The machine's own clock: it ticks through sleep, and nobody can set it.

Part of `driver.engine`; imports `driver.core`. Tests hand the engine a clock of their own.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from driver.core.retry import MachineClock

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""Names one start of the machine (random(4))."""

Machine: TypeAlias = Callable[[], MachineClock]
"""Reads the machine's clock; called from any thread."""


def machine() -> Machine:
    """Return this machine's clock. Reads one file, once."""
    boot_id = BOOT_ID.read_text(encoding="ascii").strip()
    return lambda: MachineClock(boot_id, time.clock_gettime(time.CLOCK_BOOTTIME))
