"""What the journal needs to know before it is opened. Part of `store`, pure; imports `store.records`.

`driver.config` maps the tables `[driver]`, `[control]` and `[journal]` of the configuration to this.
"""

from dataclasses import dataclass
from pathlib import Path

from store.records import FRAME_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """Where the journal lives, and its limits. The defaults are those of docs/configuration.md."""

    state_dir: Path
    runtime_dir: Path
    """A folder that a reboot clears: it holds the mark of a failed fsync, which a reboot makes void."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    """`control.max_frame_bytes`: events are cut to it, and to what the plane announced, once, at commit."""
    max_bytes: int = 2_000_000_000
    reserve_bytes: int = 16_000_000
    allow_network_fs: bool = False
    queue_max: int = 4_096
    """Callers beyond it wait until the queue has room."""
    later_max: int = 4_096
    """Lazy writes beyond it are refused with `QueueFull`; a quarter of them force a commit."""
    batch_max: int = 1_024
    """Units in one commit: bounds how long a caller waits for those before it."""
