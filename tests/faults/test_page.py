"""The figures of docs/reliability.md: what a run has seen, and nothing else."""

from collections import Counter

from tests.faults.lane import Report
from tests.faults.page import figures, placed

WHERE = {"cores": 2, "python": "3.11", "sqlite": "3.40", "kernel": "Linux"}


def test_a_lane_that_failed_is_shown_as_failed() -> None:
    """Whoever reads the page sees it, with what was measured and how much of what was wanted was reached."""
    report = Report(
        name="a lane",
        seed=1,
        points=7,
        tried="seven points",
        fired=Counter({"a kill": 3}),
        wanted=frozenset({"a kill", "a fence"}),
        figures={"lost receipts": 2},
    )
    lane = {**report.to_json(), "target": 10, "box_s": 5}
    text = figures({"lanes": [lane], "where": WHERE, "seconds": 61, "seed": 1, "full": False})
    assert "1 lanes in 1 min 1 s, seed 1, on 2 cores" in text
    assert "| a lane | 7 | 10 | 0 s | 0 s | 3 | 1 of 2 | 2 lost receipts | **fails** |" in text
    assert "**2** lost receipts (in 1)" in text


def test_a_control_is_shown_where_it_was_noticed() -> None:
    """A mechanism that was taken away counts only if the lane saw it."""
    reached = Counter({"caught: no fsync": 1, "caught: no dedupe": 0, "fence": 2})
    lane = {**Report(name="a lane", seed=1, tried="", reached=reached).to_json(), "target": 1, "box_s": 1}
    text = figures({"lanes": [lane], "where": WHERE, "seconds": 1, "seed": 1, "full": True})
    assert text.splitlines()[-1] == "| a lane | \N{EN DASH} | 2 fence | no fsync |"


def test_a_bug_that_escaped_is_shown() -> None:
    """Each seeded bug stands there with its lane, and whether that noticed it."""
    fates = [
        {"name": "no lock", "lane": "mutants", "ran": True, "caught": True},
        {"name": "no rank", "lane": "model", "ran": True, "caught": False},
    ]
    text = figures({"lanes": [], "where": WHERE, "seconds": 1, "seed": 1, "full": False, "mutants": fates})
    assert "**1 of 2** seeded bugs were caught." in text
    assert "| no lock | mutants | yes |" in text
    assert "| no rank | model | **no** |" in text


def test_all_else_on_the_page_stays() -> None:
    """What stands between two marks is replaced, once and again."""
    page = "before\n<!-- full: made by tests.faults.page -->\nold\n<!-- /full -->\nafter\n"
    once = placed(page, "full", "new \\1")
    assert once == page.replace("old", "new \\1")
    assert placed(once, "full", "old") == page
