"""Whether a command is taken, repeated or refused: every rule about it, in the order that they are asked in.

Part of `driver.core`, pure: imports `store.records`, `store.lifecycle` and the commands' definitions. The
engine gathers `AdmissionFacts` inside the transaction that then records the decision, so that no two commands
can each pass because neither saw the other. Definitions: docs/protocol.md, section 4.

Theory of operation
-------------------
The order matters, and each step says why it stands where it does:

1. a fence: this journal may be the wrong history, so not even what it knows is repeated;
2. what is known: a redelivery executes nothing, whatever else is true by now; another content is a conflict;
3. what can never be right, however often it is sent;
4. what another journal may have executed: a lost disk must not become a second effect, whatever the load is;
5. what cannot be taken now: refused without a trace, so that the plane can send it again;
6. what this run may not do: an ended run, a run unheard of, a look-alike.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from driver.core.commands import (
    STARTS_WORK,
    CommandData,
    InvalidData,
    ProbeData,
    ToolCallData,
    parse_data,
)
from driver.core.frames import CommandFrame, InvalidCommand
from driver.core.identity import Digester, content_digest, sha256
from store.lifecycle import Effect, Source, State
from store.records import (
    IDENTICAL_DEFAULT,
    CommandRecord,
    Digest,
    Fence,
    Identical,
    JournalId,
    OperationId,
    RunId,
    Tombstone,
    Twin,
)
from store.values import light

PlainCode: TypeAlias = Literal["conflict", "overloaded", "draining", "fenced", "no_room"]
LookalikeCode: TypeAlias = Literal[
    "lookalike_unsettled", "duplicate_completed", "duplicate_failed", "duplicate_unknown"
]
FinalCode: TypeAlias = Literal["invalid", "unknown_kind", "unknown_run", "run_ended"] | LookalikeCode


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A command that asks to be taken."""

    content_digest: Digest
    data: CommandData | InvalidData
    delivered_to: tuple[JournalId, ...] = ()


def candidate(frame: CommandFrame | InvalidCommand, digest: Digester = sha256) -> Candidate:
    """Return what admission looks at of a command that the plane delivered."""
    if isinstance(frame, InvalidCommand):
        return Candidate(
            content_digest=content_digest(*frame.content, digest),
            data=InvalidData(code="invalid", message=frame.message),
        )
    return Candidate(
        content_digest=content_digest(frame.kind, frame.run_id, frame.data, digest),
        data=parse_data(frame.kind, frame.data),
        delivered_to=frame.delivered_to,
    )


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionFacts:
    """What is true of the journal, the daemon and the run in the moment of the decision.

    Those with a default are looked at for a `tool.call` only: `asks` (a person has to approve it), `write`
    and `identical` come from its contract, `unapproved` operations wait for a person already, `twins` are its
    writes with the same arguments in this run and in those that it resumes. `runs_max`: it resumes more
    runs than this, and the rest were not looked at.
    """

    journal_id: JournalId
    fence: Fence | None
    known: CommandRecord | Tombstone | None
    draining: bool
    room: bool
    settling_room: bool
    """Whether the journal has room for what starts nothing: that has a part of the reserve."""
    queue_depth: int
    queue_max: int
    errands: int = 0
    """Commands without a receipt that are no calls; looked at for them only."""
    asks: bool = False
    unapproved: int = 0
    approvals_max: int = 1
    write: bool = False
    identical: Identical = IDENTICAL_DEFAULT
    run_ended: bool = False
    run_unsettled: int = 0
    run_unsettled_max: int = 1
    unknown_resumes: tuple[RunId, ...] = ()
    runs_max: int | None = None
    twins: tuple[Twin, ...] = ()


@dataclass(frozen=True, slots=True)
class Accept:
    """It is recorded as accepted, and will be done."""


@dataclass(frozen=True, slots=True)
class AcceptLost:
    """It is recorded as accepted and settled in the same breath: another journal may have executed it."""

    message: str
    reason: Literal["journal_lost"] = "journal_lost"


@dataclass(frozen=True, slots=True)
class Known:
    """The journal has it already, with this content: what it said then is said again."""


@dataclass(frozen=True, slots=True)
class RefusePlainly:
    """Not now, or not under this id: a frame, not an event; nothing is remembered."""

    code: PlainCode
    message: str


@dataclass(frozen=True, slots=True)
class RefuseFinally:
    """Never: remembered, so that the same command gets the same answer for ever."""

    code: FinalCode
    message: str
    twin: OperationId | None = None


@dataclass(frozen=True, slots=True)
class Resend:
    """A write looks like another one again."""

    code: LookalikeCode
    message: str
    twin: OperationId


Decision: TypeAlias = Accept | AcceptLost | Known | RefusePlainly | RefuseFinally


def admit(command: Candidate, facts: AdmissionFacts) -> Decision:
    """Return what becomes of `command`. Records and executes nothing."""
    if facts.fence is not None:
        return RefusePlainly("fenced", fenced_message(facts.fence.reason))
    if facts.known is not None:
        return _judge_known(command, facts.known)
    if not (facts.settling_room or _starts_work(command.data)):
        return RefusePlainly(
            "overloaded",
            "the journal has used up its reserve, too, and keeps what is left for the outcomes of what runs: "
            "raise journal.max_bytes or free the disk, and send it again",
        )
    if isinstance(command.data, InvalidData):
        return RefuseFinally(command.data.code, command.data.message)
    if elsewhere := [journal for journal in command.delivered_to if journal != facts.journal_id]:
        return AcceptLost(
            f"journal {elsewhere[0]}, to which this command was delivered, may have executed it, and this "
            f"journal ({facts.journal_id}) has no record of it: find out what happened, then reconcile it"
        )
    if (refusal := _judge_load(command.data, facts)) is not None:
        return refusal
    if not isinstance(command.data, ToolCallData):
        return Accept()
    return _judge_run(facts) or _judge_twins(command.data, facts) or Accept()


def fenced_message(reason: str) -> str:
    """Return what a command is told while the daemon is fenced for `reason`."""
    return f"the daemon is fenced ({reason}) and acts on nothing: an operator must run 'effectd unfence'"


def _judge_known(command: Candidate, known: CommandRecord | Tombstone) -> Decision:
    if known.content_digest == command.content_digest:
        return Known()
    return RefusePlainly(
        "conflict",
        f"command {known.command_id} is known with another content ({known.content_digest}, not "
        f"{command.content_digest}), and goes on as it was: send the new content under a new command_id",
    )


def _starts_work(data: CommandData | InvalidData) -> bool:
    return not isinstance(data, InvalidData) and data.KIND in STARTS_WORK


def _judge_load(data: CommandData, facts: AdmissionFacts) -> RefusePlainly | None:
    """New work is refused before there is too much of it; what settles, cancels or approves is not yet."""
    if isinstance(data, ProbeData) and facts.errands >= facts.queue_max:
        return RefusePlainly(
            "overloaded",
            f"{facts.errands} commands wait for what they asked for already (driver.queue_max): send it "
            "again later",
        )
    if not _starts_work(data):
        return None
    if facts.draining:
        return RefusePlainly("draining", "the daemon is stopping: send it again after its restart")
    if not facts.room:
        return RefusePlainly(
            "no_room",
            "the journal has no room left: raise journal.max_bytes or free the disk, and send it again",
        )
    if facts.queue_depth >= facts.queue_max:
        return RefusePlainly(
            "overloaded",
            f"{facts.queue_depth} commands wait already (driver.queue_max): send it again later",
        )
    if isinstance(data, ToolCallData) and facts.asks and facts.unapproved >= facts.approvals_max:
        return RefusePlainly(
            "overloaded",
            f"{facts.unapproved} calls wait for a person's approval already (driver.approvals_max): decide "
            "some of them, then send it again",
        )
    if isinstance(data, ToolCallData) and facts.write and facts.run_unsettled >= facts.run_unsettled_max:
        return RefusePlainly(
            "overloaded",
            f"the run has {facts.run_unsettled} unsettled writes (driver.run_unsettled_max): settle some of "
            "them, then send it again",
        )
    return None


def _judge_run(facts: AdmissionFacts) -> RefuseFinally | None:
    if facts.run_ended:
        return RefuseFinally(
            "run_ended", "the run was ended by run.end and gets no more calls: start a new run"
        )
    if facts.unknown_resumes:
        return RefuseFinally(
            "unknown_run",
            f"'resumes' names run {facts.unknown_resumes[0]}, of which this journal has no trace: send the "
            "call to the daemon that has, or start a run that resumes nothing",
        )
    return None


# ------------------------------------------------------------ look-alikes


_PRECEDENCE: Final[tuple[LookalikeCode, ...]] = (
    "lookalike_unsettled",
    "duplicate_completed",
    "duplicate_failed",
    "duplicate_unknown",
)
"""Where several twins refuse: what is still open first, then what is known best."""

_ADVICE: Final[dict[LookalikeCode, str]] = {
    "lookalike_unsettled": "runs, or may have happened: wait for it, or reconcile it",
    "duplicate_completed": "has happened, and the tool allows it once in a run: use its result",
    "duplicate_failed": "failed, may have happened, and the tool allows it once in a run: reconcile it",
    "duplicate_unknown": "may have happened, as an operator said, and the tool allows it once in a run: "
    "reconcile it when more is known",
}


def _judge_twins(data: ToolCallData, facts: AdmissionFacts) -> RefuseFinally | None:
    if not facts.write:
        return None
    hint = "; if a second one is meant, send it under a new command_id with 'repeat': true"
    found = judge_twins(facts.twins, facts.identical, repeat=data.repeat, hint=hint)
    if found is None:
        return _judge_length(data, facts)
    return RefuseFinally(found.code, found.message, found.twin)


def judge_twins(
    twins: Iterable[Twin], identical: Identical, *, repeat: bool, hint: str = ""
) -> Resend | None:
    """Return why a write is a likely resend of one of those that equal it; None where it is none.

    `repeat`: somebody has said that a second one is meant. `hint` says how.
    """
    if identical == "once-per-run":
        return _refuse_twin(((_once_per_run(twin), twin) for twin in twins), hint="")
    if repeat or identical == "allow":
        return None
    return _refuse_twin((("lookalike_unsettled" if twin.guards else None, twin) for twin in twins), hint=hint)


def _judge_length(data: ToolCallData, facts: AdmissionFacts) -> RefuseFinally | None:
    """A write like it may stand in a run that nobody looked at."""
    said = data.repeat and facts.identical != "once-per-run"
    if facts.runs_max is None or facts.identical == "allow" or said:
        return None
    return RefuseFinally(
        "invalid",
        f"the run continues more than {facts.runs_max:,} runs, through those that they resume, which is more "
        "than are looked through for an equal write: settle what is open in the earliest, and start a run "
        "that resumes only those that have something open",
    )


def _once_per_run(twin: Twin) -> LookalikeCode | None:
    """Why `twin` forbids another like it. An operator's `unknown` guards too, and has a code of its own."""
    if twin.effect_by is Source.OPERATOR and twin.effect is Effect.UNKNOWN:
        return "duplicate_unknown"
    if twin.guards:
        return "lookalike_unsettled"
    if twin.effect is Effect.OCCURRED:
        return "duplicate_completed"
    if twin.state is State.FAILED and twin.effect is Effect.UNKNOWN:
        return "duplicate_failed"
    return None


def _refuse_twin(verdicts: Iterable[tuple[LookalikeCode | None, Twin]], *, hint: str) -> Resend | None:
    """Refuse because of the twin whose code comes first, and of those the first given."""
    found: dict[LookalikeCode, Twin] = {}
    for code, twin in verdicts:
        if code is not None:
            found.setdefault(code, twin)
    for code in _PRECEDENCE:
        if code in found:
            twin = found[code]
            return Resend(
                code,
                f"operation {twin.operation_id} with the same tool and arguments {_ADVICE[code]}{hint}",
                twin.operation_id,
            )
    return None
