"""Whether an operator's verdict about an operation is recorded: a decision on what the journal says then.

Part of `driver.core`, pure: imports `driver.core.answers` and `store.lifecycle`. Definitions:
docs/local-api.md. A verdict is a word about the world, and nothing is executed because of it.

Theory of operation
-------------------
A verdict settles what nobody has settled, and what only weaker evidence has. It never stands against
stronger evidence, whatever is asked. Against another operator's verdict it stands only as an override, with
a reason; the same verdict again is no second one. It speaks of the attempts that there are: while one runs,
or another may still follow, nobody can know how it ends.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from driver.core.answers import NO_SUCH_OPERATION
from store.lifecycle import OPEN, RANK, Effect, Source, State

VerdictRefusal = Literal[
    "unknown_operation", "still_running", "outranked", "already_settled", "note_required"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an operator says of an operation that has had so many attempts; none here count as one."""

    effect: Effect
    note: str
    evidence: tuple[str, ...]
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictFacts:
    """What the journal says of the operation: its state, its effect, and who settled that.

    `state` is None for an operation that is not known. `newest` is the newest verdict of an operator (None
    where its content was erased, too), and `newest_seq` the event that recorded it.
    """

    state: State | None
    effect: Effect = Effect.UNKNOWN
    by: Source | None = None
    newest: Verdict | None = None
    newest_seq: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """The verdict is new, and stands from now on."""


@dataclass(frozen=True, slots=True)
class Known:
    """The same verdict stands already: it is event `seq`."""

    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRecorded:
    """The verdict changes nothing, and why."""

    code: VerdictRefusal
    message: str


Ruling: TypeAlias = Record | Known | NotRecorded


def rule(asked: Verdict, facts: VerdictFacts, *, override: bool) -> Ruling:
    """Return what becomes of a verdict."""
    if facts.state is None:
        return NotRecorded(code="unknown_operation", message=NO_SUCH_OPERATION)
    if facts.state in OPEN:
        return NotRecorded(code="still_running", message=_still(facts.state))
    if facts.by is not None and RANK[facts.by] > RANK[Source.OPERATOR]:
        return NotRecorded(code="outranked", message=_outranked(facts.effect, facts.by))
    if facts.newest_seq is not None and facts.by is Source.OPERATOR and asked == facts.newest:
        return Known(facts.newest_seq)
    if facts.by is not Source.OPERATOR:
        return Record()
    if not override:
        message = (
            f"an operator's verdict stands already: {facts.effect} (event {facts.newest_seq}). "
            "To change it, say `override`, with a note that says why"
        )
        return NotRecorded(code="already_settled", message=message)
    if not asked.note.strip():
        message = "an override needs a note that says why the earlier verdict is wrong"
        return NotRecorded(code="note_required", message=message)
    return Record()


def _still(state: State) -> str:
    what = (
        "an attempt of it still runs, or another may follow" if state is State.STARTED else "it still waits"
    )
    return (
        f"the operation is {state}: {what}, and how that ends is not known. Wait, or cancel its command first"
    )


def _outranked(effect: Effect, by: Source) -> str:
    who = {Source.PROVIDER: "the provider's answer", Source.SHIM: "the command shim's record"}
    return (
        f"{who.get(by, 'the proof of the daemon')} says {effect}, which an operator's word does not "
        "override, with `override` or without"
    )
