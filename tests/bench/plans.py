"""How much each form of the bench measures."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured. Times are in seconds."""

    rounds: int
    seconds: float
    """How long each turn takes, about."""
    operations: int
    """Operations of a turn of the journal, and of its floor."""
    peers: bool
    """Whether the foreign libraries take part."""
    stall_rounds: int
    """Rounds of a daemon whose disk is slow: what they are held against is no part of them."""
    stall_s: float
    memory_calls: int
    memory_s: float
    """After so long the calls end, however many were made."""
    backlog_events: int
    few: int
    """Settled operations of the short journal."""
    many: int


WHOLE: Final = Plan(
    rounds=5,
    seconds=1.0,
    operations=2_560,
    peers=True,
    stall_rounds=5,
    stall_s=4.0,
    memory_calls=1_000_000,
    memory_s=1_200.0,
    backlog_events=1_000_000,
    few=10_000,
    many=1_000_000,
)
SHORT: Final = Plan(
    rounds=5,
    seconds=0.2,
    operations=256,
    peers=False,
    stall_rounds=3,
    stall_s=0.6,
    memory_calls=10_000,
    memory_s=3.0,
    backlog_events=60_000,
    few=1_000,
    many=10_000,
)
