"""The figures of docs/reliability.md, from the reports of runs: `python -m tests.faults.page FILE…`.

Each FILE was written by `python -m tests.faults --json FILE`; a short and a full run have a place each.
What stands between the marks of the page is replaced, and all else stays: figures are never written by hand.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.faults.__main__ import LANES
from tests.faults.lane import MEASURES, Box, Report

PAGE: Final = Path(__file__).parents[2] / "docs" / "reliability.md"
PLACES: Final = ("lanes", "normal", "full")
NONE: Final = "\N{EN DASH}"
_WORDS_MAX: Final = 14
"""Faults and states that a row names; there may be more."""


def main(arguments: list[str]) -> int:
    """Write the page anew."""
    page = placed(PAGE.read_text(encoding="utf-8"), "lanes", lanes())
    for name in arguments:
        found: Mapping[str, Any] = json.loads(Path(name).read_text(encoding="utf-8"))
        page = placed(page, "full" if found["full"] else "normal", figures(found))
    PAGE.write_text(page, encoding="utf-8")
    return 0


def placed(page: str, place: str, text: str) -> str:
    """Return the page with this text between the marks of `place`."""
    begin, end = f"<!-- {place}: made by tests.faults.page -->", f"<!-- /{place} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    assert pattern.search(page), f"the page has no place for {place}"
    return pattern.sub(lambda _: f"{begin}\n{text}\n{end}", page)


def lanes() -> str:
    """The lanes that there are, and what each is given."""
    rows = [
        f"| **{lane.name}** | {lane.what} | {lane.points} | {_box(lane.normal)} | {_box(lane.full)} |"
        for lane in LANES
    ]
    return _table(
        "| lane | what | a point is one of | `make faults`, at most | `make faults-full`, at most |", rows
    )


def _box(box: Box) -> str:
    return f"{box.points:,} in {box.seconds:g} s"


def figures(found: Mapping[str, Any]) -> str:
    """What a run came to: a line about it, how much was tried, what was measured, and what was reached."""
    where = found["where"]
    reports = [(Report.from_json(_reported(lane)), lane) for lane in found["lanes"]]
    took = f"{found['seconds'] // 60} min {found['seconds'] % 60} s"
    first = (
        f"{len(reports)} lanes in {took}, seed {found['seed']}, on "
        f"{where['cores']} cores, {where['kernel']}, Python {where['python']}, SQLite {where['sqlite']}."
    )
    tried = [
        f"| {report.name} | {report.points:,} | {lane['target']:,} | {report.seconds:.0f} s "
        f"| {report.cpu_s:.0f} s "
        f"| {report.fired.total():,} | {len(report.wanted) - len(report.missed)} of {len(report.wanted)} "
        f"| {_measured(report)} | {'holds' if report.holds else '**fails**'} |"
        for report, lane in reports
    ]
    head = "| lane | points | at most | took | CPU | faults that fired | wanted and reached | must be 0 | |"
    reached = [
        f"| {report.name} | {_most(report.fired.items())} | {_most(_states(report))} | {_caught(report)} |"
        for report, _ in reports
    ]
    second = "| lane | faults | states | mechanisms taken away, and noticed |"
    parts = [first, _table(head, tried), _totals(reports), _table(second, reached)]
    if fates := found.get("mutants"):
        parts.append(_mutants(fates))
    return "\n\n".join(parts)


def _mutants(fates: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        f"| {fate['name']} | {fate['lane']} | {'yes' if fate['caught'] else '**no**'} |" for fate in fates
    ]
    caught = sum(bool(fate["caught"]) for fate in fates)
    head = "| seeded bug | lane | caught |"
    return f"**{caught} of {len(fates)}** seeded bugs were caught.\n\n{_table(head, rows)}"


def _reported(lane: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in lane.items() if name not in ("target", "box_s")}


def _measured(report: Report) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in report.figures.items()) or NONE


def _totals(reports: Iterable[tuple[Report, Mapping[str, Any]]]) -> str:
    every = [report for report, _ in reports]
    sums = {
        name: (sum(report.figures.get(name, 0) for report in every), sum(name in r.figures for r in every))
        for name in MEASURES
    }
    return (
        "In all lanes that measure it: "
        + ", ".join(f"**{count:,}** {name} (in {lanes})" for name, (count, lanes) in sums.items())
        + "."
    )


def _states(report: Report) -> Iterable[tuple[str, int]]:
    return ((name, count) for name, count in report.reached.items() if not name.startswith("caught: "))


def _caught(report: Report) -> str:
    return (
        ", ".join(
            sorted(name.removeprefix("caught: ") for name in report.reached if _is_caught(report, name))
        )
        or NONE
    )


def _is_caught(report: Report, name: str) -> bool:
    return name.startswith("caught: ") and report.reached[name] > 0


def _most(counts: Iterable[tuple[str, int]]) -> str:
    ordered = sorted(counts, key=lambda item: (-item[1], item[0]))
    words = [f"{count:,} {name}" for name, count in ordered[:_WORDS_MAX] if count]
    if more := len([1 for _, count in ordered[_WORDS_MAX:] if count]):
        words.append(f"and {more} more")
    return ", ".join(words) or NONE


def _table(head: str, rows: Iterable[str]) -> str:
    return "\n".join((head, "|---" * (head.count("|") - 1) + "|", *rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
