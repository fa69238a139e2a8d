"""First form: identity only."""

import sqlite3
from pathlib import Path
from store.head import Head
from store.identity import Identity


def inspect(path: Path, identity: Identity) -> None:
    """."""


def check_tail(raw: sqlite3.Connection, head: Head, path: Path) -> None:
    """."""
