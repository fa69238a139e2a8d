"""What keeps an import from writing anything, as text that says where, and what to do.

Part of `driver.importing`; imports `driver.config.errors`.
"""

from collections.abc import Sequence
from pathlib import Path

from driver.config.errors import Problem, printable


class ImportRefused(Exception):
    """Nothing was written; `path` is the file that it is about."""

    path: Path


class SourceUnreadable(ImportRefused):
    """The file to import from is no text in a form that clients use; `reason` says why, and what to do."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(printable(f"{path}: {reason}"))


class SourceInvalid(ImportRefused):
    """The file to import from has each of `problems`."""

    def __init__(self, path: Path, problems: Sequence[Problem]) -> None:
        self.path = path
        self.problems = tuple(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        first = f"{printable(str(path))}: {count}; nothing was written"
        super().__init__("\n".join([first, *(f"  {problem}" for problem in self.problems)]))


class TargetExists(ImportRefused):
    """Each of `existing` stands where the import would write."""

    def __init__(self, existing: Sequence[Path]) -> None:
        self.path = existing[0]
        self.existing = tuple(existing)
        others = len(existing) - 1
        more = f" (and {others} more)" if others else ""
        super().__init__(
            f"{printable(str(self.path))}{more} exists already, and nothing was written: name another file "
            "with --config, or replace what is there with --force"
        )
