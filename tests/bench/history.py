"""What earlier runs measured: one line of JSON for each commit, and the page that is made of them."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.bench.report import number

SHOWN: Final = 20
"""Commits on the page: the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a run measured at a commit."""

    commit: str
    changed: bool
    """Whether what ran was not all committed."""
    machine: str
    noise: float
    goals: Mapping[str, float]


def present_commit(root: Path) -> tuple[str, bool]:
    """Return the commit's short name, and whether the product differs from it."""
    return _git(root, "rev-parse", "--short=10", "HEAD"), bool(
        _git(root, "status", "--porcelain", "--", "driver", "store", "tests/bench")
    )


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def remember(file: Path, entry: Entry) -> Sequence[Entry]:
    """Add the entry to the file, in place of an earlier one of its commit; return all, the oldest first."""
    lines = file.read_text().splitlines() if file.exists() else []
    entries = [
        found for found in (Entry(**json.loads(line)) for line in lines) if found.commit != entry.commit
    ]
    entries.append(entry)
    file.write_text("".join(f"{json.dumps(asdict(each), sort_keys=True)}\n" for each in entries))
    return entries


def regressions(entries: Sequence[Entry]) -> str:
    """Return the page: a row for each goal, a column for each commit, the newest first."""
    shown = list(reversed(entries[-SHOWN:]))
    titles = list(dict.fromkeys(title for entry in shown for title in entry.goals))
    head = ["what", *(f"`{entry.commit}`{'+' if entry.changed else ''}" for entry in shown)]
    rows = [
        [title, *(number(entry.goals[title]) if title in entry.goals else "" for entry in shown)]
        for title in titles
    ]
    rows.append(["noise of the run", *(f"{entry.noise:.0%}" for entry in shown)])
    return (
        "# Speed, by commit\n\n"
        "What `make bench` measured of each goal ([performance.md](../performance.md)),\n"
        "the newest commit first; `+`: with changes that were not committed.\n"
        "Made from `history.jsonl` by the bench, never by hand.\n"
        "Compare a number with the noise of its run before you believe that it moved.\n\n" + table(head, rows)
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown: the first column to the left, numbers to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
