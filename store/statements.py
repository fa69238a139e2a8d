"""The SQL of the journal, by name. Part of `store`; imports nothing of ours.

Each file in `store/sql/` holds statements as `-- name: xyz` followed by the SQL up to the next name. Comments
before the first name say what the file is about.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Final

_NAME: Final = re.compile(r"^-- name: (?P<name>[a-z][a-z0-9_]*)\n", re.MULTILINE)


def parse(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the SQL of each statement in `text`. Raises ValueError for one without SQL."""
    marks = list(_NAME.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    for mark, end in zip(marks, ends, strict=True):
        sql = text[mark.end() : end].strip().removesuffix(";")
        if not sql:
            raise ValueError(f"the statement {mark['name']} is empty")  # noqa: TRY003 - for whoever edits the SQL
        yield mark["name"], sql


def load() -> Mapping[str, str]:
    """Return every statement in `store/sql/`. Raises ValueError where a name stands twice."""
    found: dict[str, str] = {}
    for file in sorted((files("store") / "sql").iterdir(), key=lambda item: item.name):
        if not file.name.endswith(".sql"):
            continue
        for name, sql in parse(file.read_text(encoding="utf-8")):
            if name in found:
                raise ValueError(f"the statement {name} stands twice")  # noqa: TRY003 - likewise
            found[name] = sql
    return MappingProxyType(found)


STATEMENTS: Final = load()
_COMMENTS: Final = re.compile(r"(?:--[^\n]*\n)*")
READS: Final = frozenset(
    name for name, sql in STATEMENTS.items() if _COMMENTS.sub("", sql, count=1).startswith(("SELECT", "WITH"))
)
"""Statements that change nothing, so that nothing of them has to be undone."""
OF_A_STATEMENT: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    sqlite3.NotSupportedError,
)
"""What SQLite says of a statement, not of the disk: it fails the unit that made it."""
