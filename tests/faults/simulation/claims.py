"""What one event says of an operation's attempts: it must have been true, also where a later word covers it.

The journal's last word is judged at rest. What is pruned by then, or has been said otherwise since, was told
to somebody all the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from store.lifecycle import Effect

_VERDICT = "operation.reconciled"
_OF_ALL = frozenset({"operation.not_executed", _VERDICT})
"""What speaks of each attempt until then, or until the intent that whoever judged had seen."""
_OF_ONE = frozenset(
    {"operation.succeeded", "operation.failed", "operation.late_result", "operation.attempt_ended"}
)
"""What speaks of one."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Some attempts have done something, or none of them has."""

    effect: Effect
    attempts: range


def claim(kind: str, data: Mapping[str, Any], intents: Mapping[int, int]) -> Claim | None:
    """Return what an event says; None where it claims nothing, as a guess does.

    `intents` are those of its operation until then, the newest last: the attempt of each, by its seq.
    """
    effect = data.get("effect")
    is_guess = str(data.get("actor", "")).startswith("supervisor")
    if effect not in (Effect.NONE, Effect.OCCURRED) or is_guess:
        return None
    attempts = tuple(intents.values())[-1] if intents else 0
    if kind in _OF_ALL:
        named = data.get("started_seq") if kind == _VERDICT else None
        seen = attempts if named is None else intents.get(int(named), attempts)
        return Claim(Effect(effect), range(1, seen + 1))
    if kind in _OF_ONE:
        attempt = int(data.get("attempt") or attempts)
        return Claim(Effect(effect), range(attempt, attempt + 1))
    return None
