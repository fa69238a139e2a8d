"""The demo's exit code: it says the truth about what was counted."""

from dataclasses import replace

from driver.demo.tally import Count, Outcome, Row, exit_code, table, wrong

OUTCOME = Outcome(
    row=Row(
        act="an act",
        driver="effectd",
        asked=1,
        commits=Count(what="commits", expected=1, found=1),
        receipts=Count(what="receipts", expected=1, found=1),
        known="succeeded",
    ),
    checks=[Count(what="deliveries", expected=2, found=2)],
)


def test_right_counts_exit_with_zero() -> None:
    """The exit code is 0 where each count is what the story promises."""
    assert exit_code([OUTCOME, OUTCOME]) == 0
    assert table([OUTCOME])["right"] is True


def test_a_wrong_count_of_commits_exits_with_one() -> None:
    """Negative control: a commit too many, or one that is missing, is never a success."""
    for found in (0, 2):
        commits = Count(what="commits", expected=1, found=found)
        doubled = replace(OUTCOME, row=replace(OUTCOME.row, commits=commits))
        assert exit_code([OUTCOME, doubled]) == 1
        assert wrong([OUTCOME, doubled]) == (commits,)
        assert table([doubled])["wrong"] == ["commits"]


def test_a_wrong_count_beside_the_table_exits_with_one() -> None:
    """Negative control: what was counted on the way counts like what stands in the table."""
    late = replace(OUTCOME, checks=[Count(what="deliveries", expected=2, found=1)])
    lost = replace(OUTCOME, row=replace(OUTCOME.row, receipts=Count(what="receipts", expected=1, found=0)))
    assert exit_code([late]) == exit_code([lost]) == 1


def test_a_demo_without_an_act_is_no_success() -> None:
    """Nothing counted is nothing shown."""
    assert exit_code([]) == 1
