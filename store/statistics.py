"""What the journal says of itself. Part of `store`, pure; imports `store.records`."""

from dataclasses import dataclass

from store.records import Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStatistics:
    """How the journal does, as of the last commit. Sizes in bytes: a second old, or of the last read."""

    commits: int
    """Group commits that wrote: each is one fdatasync."""
    units: int
    """Units that those commits ran, and reads."""
    events: int
    waiting: int
    base: int
    """The seq before the present history's first event; the two that follow count on with it."""
    last_seq: int
    acked_seq: int
    last_commit_at: Timestamp | None
    bytes: int
    wal_bytes: int
    """As it is now."""
    free_bytes: int
    checkpoints: int
    lazy_errors: int
    rotated: bool
    """True where this life began with a new generation, because an fsync had failed."""
    volatile: bool
    """True on a memory file system, which a reboot empties."""
    file_system: str
    file_name: str
    sqlite_version: str
