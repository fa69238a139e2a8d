"""What can be wrong with a configuration, as text that says where, what was found and what is allowed.

Part of `driver.config`; imports nothing of ours.

    ConfigError
     ├── ConfigUnreadable   there is no such file, or it cannot be read as text
     └── ConfigInvalid      it can be read, and breaks the contract: one `Problem` for each mistake
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NO_FILE: Final = "there is no such file; name yours with --config FILE, or make one: effectd init --from FILE"
TablePath = tuple[str, ...]
"""The names that lead to a table: `("providers", "issues", "tools")`; empty for the file's top."""

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def toml_name(path: TablePath) -> str:
    """Return `path` as TOML writes it in a table's header, quoted where it must be."""
    return ".".join(part if _BARE_KEY.fullmatch(part) else _quoted(part) for part in path)


def _quoted(text: str) -> str:
    return '"' + printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def printable(text: str) -> str:
    """Return `text` without what a terminal would obey: such characters as TOML escapes."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake: in which table, at which key (None: the table itself), and what to do about it.

    `key` is as the file would write it, with the place in its value: `argv[1]`. `message` says
    what was found and what is allowed.
    """

    table: TablePath
    key: str | None
    message: str

    def __str__(self) -> str:
        where = f"[{toml_name(self.table)}]" if self.table else "top level"
        return printable(f"{where} {self.key}: {self.message}" if self.key else f"{where}: {self.message}")


@dataclass(frozen=True, slots=True)
class Clash:
    """Two keys exclude each other: the one to change, and what to do."""

    key: str
    message: str


Found = Clash | None


class ConfigError(Exception):
    """The configuration at `path` cannot be used, and nothing was started; `problems` has every reason."""

    path: Path
    problems: tuple[Problem, ...]


class ConfigUnreadable(ConfigError):
    """`path` cannot be read as text; `reason` says why, and what to do."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        self.problems = (Problem(table=(), key=None, message=reason),)
        super().__init__(printable(f"{path}: {reason}"))


class ConfigInvalid(ConfigError):
    """`path` breaks the contract in each of `problems`, in the order of the tables."""

    def __init__(self, path: Path, problems: Sequence[Problem]) -> None:
        self.path = path
        self.problems = tuple(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        lines = [
            f"{printable(str(path))}: {count} in the configuration",
            *(f"  {problem}" for problem in self.problems),
        ]
        super().__init__("\n".join(lines))
