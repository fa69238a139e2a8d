"""What may honestly be said of a command, against what was seen of it."""

import pytest

from driver.conformance.verdict import MEANING, Answer, Harm, Outcome, Seen, harms, key_harms

TABLE: list[tuple[Seen, set[Harm]]] = [
    (Seen(told=Outcome.SUCCEEDED, effects=1, answer=Answer.SUCCESS), set()),
    (Seen(told=Outcome.UNKNOWN, effects=1, answer=Answer.NONE), set()),
    (Seen(told=Outcome.UNKNOWN, effects=1, answer=Answer.ERROR), set()),
    (Seen(told=Outcome.FAILED, effects=1, answer=Answer.ERROR), set()),
    (Seen(told=Outcome.NOT_EXECUTED, effects=0, answer=Answer.NONE), set()),
    (Seen(told=Outcome.SUCCEEDED, effects=2, answer=Answer.SUCCESS), {Harm.DUPLICATE}),
    (Seen(told=Outcome.RUNNING, effects=1, answer=Answer.NONE), {Harm.HANG}),
    (Seen(told=Outcome.UNHEARD, effects=1, answer=Answer.NONE), {Harm.LOST_COMMAND}),
    (Seen(told=Outcome.REFUSED, effects=0, answer=Answer.NONE), {Harm.LOST_COMMAND}),
    (Seen(told=Outcome.FAILED, effects=1, answer=Answer.NONE), {Harm.FALSE_FAILURE}),
    (Seen(told=Outcome.NOT_EXECUTED, effects=1, answer=Answer.ERROR), {Harm.FALSE_FAILURE}),
    (Seen(told=Outcome.SUCCEEDED, effects=0, answer=Answer.NONE), {Harm.FALSE_SUCCESS}),
    (Seen(told=Outcome.SUCCEEDED, effects=1, answer=Answer.ERROR), {Harm.FALSE_SUCCESS}),
    (Seen(told=Outcome.SUCCEEDED, effects=1, answer=Answer.NONE), {Harm.FALSE_SUCCESS}),
    (Seen(told=Outcome.SUCCEEDED, effects=1, answer=Answer.NONE, learned=True), set()),
    (Seen(told=Outcome.UNKNOWN, effects=1, answer=Answer.SUCCESS), {Harm.LOST_ANSWER}),
    (Seen(told=Outcome.UNKNOWN, effects=1, answer=Answer.SUCCESS, disturbed=True), set()),
]


@pytest.mark.parametrize(("seen", "expected"), TABLE, ids=str)
def test_each_end_has_its_harms_and_no_others(seen: Seen, expected: set[Harm]) -> None:
    """A caller is harmed by what misleads it, and not by an honest `unknown`."""
    assert harms(seen) == expected


def test_attempts_of_one_command_carry_one_key() -> None:
    """Another key, or none, is unstable; a single attempt proves nothing."""
    assert key_harms(["a", "a"]) == frozenset()
    assert key_harms([None]) == frozenset()
    assert key_harms(["a", "b"]) == {Harm.UNSTABLE_KEY}
    assert key_harms(["a", None]) == {Harm.UNSTABLE_KEY}


def test_each_harm_is_put_into_words() -> None:
    """No certificate names a harm that is not explained."""
    assert set(MEANING) == set(Harm)
