"""What somebody who looks at an operation may do next: one table, of commands that exist.

Part of `driver.cli`, pure: imports the store's vocabulary and the replies. A command that comes to life
adds its line here, and every view that gives advice has it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from driver.cli.replies import Operation
from store.lifecycle import OPEN, State
from store.records import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """One piece of advice: for which operations, the command to type (if any), and what it is for."""

    applies: Callable[[Operation], bool]
    command: str | None
    advice: str


def _may(action: str) -> Callable[[Operation], bool]:
    """Whether the daemon said that it would take the command now. A list does not say, and advises little."""
    return lambda operation: action in (operation.allowed or ())


def _unsettled(operation: Operation) -> bool:
    return not operation.settled and operation.state not in OPEN


def _settle(operation: Operation) -> bool:
    return _unsettled(operation) if operation.allowed is None else "reconcile" in operation.allowed


HINTS: Final = (
    Hint(
        applies=_unsettled,
        command=None,
        advice="Look in the provider whether it happened: the call carried the key {operation_id}.",
    ),
    Hint(
        applies=lambda operation: not operation.settled and operation.state is State.UNKNOWN,
        command=None,
        advice="An answer that still arrives is recorded, and settles it by itself.",
    ),
    Hint(
        applies=lambda operation: _unsettled(operation) and operation.origin != Origin.GATEWAY,
        command=None,
        advice=(
            "Nothing runs it again by itself: the same command, redelivered, gets this receipt, and an equal "
            "call of the same run is refused (unless it says `repeat`)."
        ),
    ),
    Hint(
        applies=lambda operation: _unsettled(operation) and operation.origin == Origin.GATEWAY,
        command=None,
        advice="Nothing runs it again by itself: an equal call of the agent, in the same run, is refused.",
    ),
    Hint(
        applies=lambda operation: _unsettled(operation) and "probe" in (operation.allowed or ()),
        command="effectd probe {operation_id}",
        advice="look there now, with the read that its contract declares",
    ),
    Hint(
        applies=_may("retry"),
        command="effectd retry {operation_id}",
        advice="call it again with the same key, which is safe now",
    ),
    Hint(
        applies=_may("compensate"),
        command="effectd compensate {operation_id}",
        advice="take it back, with the call that its contract declares",
    ),
    Hint(
        applies=_settle,
        command="effectd reconcile {operation_id} --effect EFFECT --note TEXT",
        advice="record what you found, as EFFECT none, occurred or unknown; it executes nothing",
    ),
    Hint(
        applies=_may("override"),
        command="effectd reconcile {operation_id} --effect EFFECT --note TEXT --override",
        advice="stand against the operator's verdict with none, occurred or unknown, and say why",
    ),
    Hint(
        applies=lambda operation: operation.state is State.AWAITING_APPROVAL,
        command="effectd approve {operation_id}",
        advice="let it run, once, exactly as it was asked",
    ),
    Hint(
        applies=lambda operation: operation.state is State.AWAITING_APPROVAL,
        command="effectd deny {operation_id}",
        advice="end it: nothing is sent",
    ),
    Hint(
        applies=lambda operation: operation.state in OPEN,
        command="effectd tail --follow",
        advice="watch what becomes of it",
    ),
    Hint(
        applies=lambda _: True,
        command="effectd show {operation_id}",
        advice="its whole story, and whether it can be probed, retried or taken back",
    ),
)
"""In the order in which they are shown."""


def hints_for(operation: Operation, *, within: str | None = None) -> Iterator[tuple[str | None, str]]:
    """Yield (command or None, advice) for `operation`, ready to be typed; none of the subcommand `within`."""
    own = f"effectd {within} "
    for hint in HINTS:
        if hint.applies(operation) and not (hint.command or "").startswith(own):
            command = (
                None if hint.command is None else hint.command.format(operation_id=operation.operation_id)
            )
            yield command, hint.advice.format(operation_id=operation.operation_id)
