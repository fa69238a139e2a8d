"""The page of earlier commits: made from one line for each of them."""

from dataclasses import replace
from pathlib import Path

from tests.bench.history import Entry, regressions, remember

ENTRY = Entry(commit="aaaa", changed=False, machine="2 cores", noise=0.1, goals={"speed": 1.0})


def test_each_commit_has_one_line_and_the_newest_measurement_counts(tmp_path: Path) -> None:
    """A second run of a commit takes the place of the first."""
    file = tmp_path / "history.jsonl"
    remember(file, ENTRY)
    remember(file, replace(ENTRY, commit="bbbb"))
    found = remember(file, replace(ENTRY, goals={"speed": 2.0}))
    assert [(entry.commit, entry.goals["speed"]) for entry in found] == [("bbbb", 1.0), ("aaaa", 2.0)]
    assert len(file.read_text().splitlines()) == 2


def test_the_page_shows_the_newest_first_and_what_is_missing_as_nothing() -> None:
    """A goal that an earlier commit did not have yet leaves its cell empty."""
    newer = replace(ENTRY, commit="bbbb", changed=True, goals={"speed": 2.0, "size": 400.0})
    lines = regressions([ENTRY, newer]).splitlines()
    assert lines[-5:] == [
        "| what | `bbbb`+ | `aaaa` |",
        "| --- | ---: | ---: |",
        "| speed | 2 | 1 |",
        "| size | 400 |  |",
        "| noise of the run | 10% | 10% |",
    ]
