"""How much one commit may remove, and when what that left in the `-wal` is copied."""

from collections.abc import Callable

from store.pace import COMMIT_S, SHARE_MIN, STEP_BYTES, STEP_PAGES, STEP_S, Pace


class Hands:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_commit_has_one_budget_whoever_draws_on_it() -> None:
    """What one caller has used, in bytes or in time, the next one has not; the next commit has a new one."""
    hands = Hands()
    pace = Pace(hands)
    with pace.step() as first:
        hands.now += STEP_S / 2
        first.take(STEP_BYTES - 1)
        assert not first.spent
    hands.now += 60  # others have their turn: that is nobody's step
    with pace.step() as second:
        found = [(second.spent, second.full)]
        hands.now += STEP_S / 2
        found.append((second.spent, second.full))
        second.take(1)
        found.append((second.spent, second.full))
        assert found == [(False, False), (True, False), (True, True)]
    pace.told(0.001, 10)
    with pace.step() as third:
        assert not third.spent


def test_only_the_first_thing_may_be_too_long() -> None:
    """One row may be longer than all that a commit may overwrite: then it is alone."""
    with Pace(Hands()).step() as budget:
        assert budget.has_room(STEP_BYTES * 9)
        budget.take(1)
        assert budget.has_room(STEP_BYTES - 1)
        assert not budget.has_room(STEP_BYTES)


def shares(tell: Callable[[Pace, float], None]) -> list[float]:
    """The share after each of a few slow commits, and then fast ones."""
    pace, found = Pace(Hands()), list[float]()
    for seconds in (COMMIT_S * 2,) * 4 + (COMMIT_S / 2,) * 8:
        tell(pace, seconds)
        found.append(pace.share)
    return found


def test_what_takes_too_long_makes_the_next_steps_smaller() -> None:
    """A commit that has removed something, or the copying of its pages; and it grows back."""

    def committed(pace: Pace, seconds: float) -> None:
        pace.used(scatters=True)
        pace.told(seconds, 10)

    def copied(pace: Pace, seconds: float) -> None:
        pace.used(scatters=True)
        pace.told(COMMIT_S, 10)
        pace.copied(seconds)

    found = shares(committed)
    assert found[:4] == [0.5, SHARE_MIN, SHARE_MIN, SHARE_MIN]
    assert found[-1] == 1.0
    assert shares(copied)[0] == 0.5


def test_what_others_do_is_not_the_pace_s_business() -> None:
    """A commit that removed nothing, however slow, changes nothing, and neither does a checkpoint of such."""

    def other(pace: Pace, seconds: float) -> None:
        pace.told(seconds, 10_000)
        pace.copied(seconds)
        assert not pace.due

    assert set(shares(other)) == {1.0}


def test_a_checkpoint_is_due_by_the_pages_of_removals() -> None:
    """Not by those of others, nor by those that lie together."""
    pace = Pace(Hands())
    pace.used(scatters=True)
    pace.told(0.001, STEP_PAGES - 1)
    pace.told(0.001, 500)
    pace.used(scatters=False)
    pace.told(0.001, 500)
    found = [pace.due]
    pace.used(scatters=True)
    pace.told(0.001, 1)
    found.append(pace.due)
    pace.copied(0.001)
    found.append(pace.due)
    assert found == [False, True, False]
