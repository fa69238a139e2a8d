"""What was seen of a subject, against what may honestly be said of it. Pure.

Part of `driver.conformance`; imports nothing of ours.

A subject fails a case where it did, or claimed, what a caller could be harmed by: an effect more than was
asked for, a finished action called failed, one that never was called done, silence without end. That it calls
something unknown is no harm, except where it had the answer in its hands. So `unknown` for everything would
fail, too: of what was answered in time, somebody wants to know.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Outcome(StrEnum):
    """What a subject says of a command. An adapter maps what its runtime tells a caller to one of these."""

    SUCCEEDED = "succeeded"
    """It happened."""
    FAILED = "failed"
    """The tool answered that it failed."""
    NOT_EXECUTED = "not_executed"
    """It certainly did not happen: to ask again is safe."""
    UNKNOWN = "unknown"
    """It may have happened."""
    REFUSED = "refused"
    """This command was not taken."""
    RUNNING = "running"
    """Nothing is known yet."""
    UNHEARD = "unheard"
    """The subject knows no such command."""


class Answer(StrEnum):
    """What the tool said to the subject's call, before the deadline and before any kill."""

    SUCCESS = "success"
    ERROR = "error"
    NONE = "none"


class Harm(StrEnum):
    """How a subject can fail a case."""

    DUPLICATE = "duplicate_effect"
    FALSE_FAILURE = "false_failure"
    FALSE_SUCCESS = "false_success"
    HANG = "hang"
    LOST_ANSWER = "lost_answer"
    LOST_COMMAND = "lost_command"
    LOST_EFFECT = "lost_effect"
    UNSTABLE_KEY = "unstable_key"
    SHARED_KEY = "shared_key"
    CONFLICT_IGNORED = "conflict_ignored"


MEANING: Final = {
    Harm.DUPLICATE: "one command had more than one effect",
    Harm.FALSE_FAILURE: "an effect occurred, and the caller was told that it failed, or was never executed",
    Harm.FALSE_SUCCESS: "the caller was told that it succeeded, and neither the tool nor its search said so",
    Harm.HANG: "the caller was never told anything",
    Harm.LOST_ANSWER: "the tool had answered in time, and the caller was not told what",
    Harm.LOST_COMMAND: "a command that was taken is not known any more",
    Harm.LOST_EFFECT: "a command that nothing stood in the way of had no effect",
    Harm.UNSTABLE_KEY: "two attempts of one command carried different keys, or none",
    Harm.SHARED_KEY: "two commands carried the same key",
    Harm.CONFLICT_IGNORED: "the id of a known command was taken for other arguments",
}
"""Each harm in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One command, as the world and the caller saw it."""

    told: Outcome
    """What the caller was told last."""
    effects: int
    answer: Answer
    learned: bool = False
    """Whether the search has told the subject what became of it, or an answer after the deadline has."""
    disturbed: bool = False
    """Whether the subject was killed before it could tell: what it had heard may be lost then."""


def harms(seen: Seen) -> frozenset[Harm]:
    """Return what was wrong with the end of one command that was given, once or more often."""
    found: set[Harm] = set()
    if seen.effects > 1:
        found.add(Harm.DUPLICATE)
    if seen.told is Outcome.RUNNING:
        found.add(Harm.HANG)
    if seen.told in (Outcome.UNHEARD, Outcome.REFUSED):
        found.add(Harm.LOST_COMMAND)
    if seen.effects and (seen.told is Outcome.NOT_EXECUTED or _calls_silence_failure(seen)):
        found.add(Harm.FALSE_FAILURE)
    is_guess = seen.answer is not Answer.SUCCESS and not seen.learned
    if seen.told is Outcome.SUCCEEDED and (not seen.effects or is_guess):
        found.add(Harm.FALSE_SUCCESS)
    if seen.answer is Answer.SUCCESS and not seen.disturbed:
        found |= {Harm.LOST_ANSWER} if seen.told in (Outcome.UNKNOWN, Outcome.FAILED) else set()
    return frozenset(found)


def _calls_silence_failure(seen: Seen) -> bool:
    """Whether a failure is claimed that no tool has spoken of."""
    return seen.told is Outcome.FAILED and seen.answer is not Answer.ERROR


def key_harms(attempts: Collection[str | None]) -> frozenset[Harm]:
    """Return what is wrong with the keys of all attempts of one command; one attempt proves nothing."""
    if len(attempts) > 1 and (None in attempts or len(set(attempts)) > 1):
        return frozenset({Harm.UNSTABLE_KEY})
    return frozenset()
