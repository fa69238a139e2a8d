"""What one event says of an operation's attempts: it must have been true, also where a later word covers it.

The journal's last word is judged at rest. What is pruned by then, or has been said otherwise since, was told
to somebody all the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from store.lifecycle import Effect

_OF_ALL = frozenset({"operation.not_executed", "operation.reconciled"})
"""What speaks of each attempt until then."""
_OF_ONE = frozenset(
    {"operation.succeeded", "operation.failed", "operation.late_result", "operation.attempt_ended"}
)
"""What speaks of one."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Some attempts have done something, or none of them has."""

    effect: Effect
    attempts: range


def claim(kind: str, data: Mapping[str, Any], attempts: int) -> Claim | None:
    """Return what an event says after so many attempts; None where it claims nothing, as a guess does."""
    effect = data.get("effect")
    is_guess = str(data.get("actor", "")).startswith("supervisor")
    if effect not in (Effect.NONE, Effect.OCCURRED) or is_guess:
        return None
    if kind in _OF_ALL:
        return Claim(Effect(effect), range(1, attempts + 1))
    if kind in _OF_ONE:
        attempt = int(data.get("attempt") or attempts)
        return Claim(Effect(effect), range(attempt, attempt + 1))
    return None
