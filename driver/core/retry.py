"""Whether an operation gets another attempt by itself: what its contract asks for, within rule R.

Part of `driver.core`, pure: imports `driver.core.{contracts,conclusion}` and `store`'s values; time arrives
as facts, chance as an argument. Definition of rule R: docs/protocol.md, section 4.

Theory of operation
-------------------
Two questions, and both must be answered with yes:

* *Is it worth another try?* (`decide`) The tool's contract says `retry = "same-key"`, attempts are left, the
  command lives until then, and the outcome is one that another try can better: nothing was sent because
  nobody could be reached; or an answer that is no last word; or no answer at all. An answer that was a plain
  failure, a wrong call, a cancel or an expiry is final.
* *May it run again?* (`permit`) Reads may. A write may (a) where every attempt so far is proven not to have
  happened, and none of them can land any more; or (b) where the provider deduplicates: the contract that the
  first attempt was recorded under and today's both say so, with the same key carrier, and the new attempt's
  whole budget ends before the provider forgets the key.

All but the outcome is looked at again (`forbid`) in the transaction that records the intent, because waiting
took time. Where somebody asks for the attempt, only the second question is asked: `driver.core.revival`.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, Literal, TypeAlias

from driver.core.conclusion import Outcome
from driver.core.contracts import Contract
from store.events import OperationFailed, OperationNotExecuted, OperationSucceeded, OperationUnknown

BACKOFF_S_MAX: Final = 30.0
"""Where the doubling of `retry_backoff_s` ends (docs/configuration.md)."""

_DOUBLINGS_MAX: Final = 16
"""Beyond the ceiling already, for any backoff above half a millisecond."""

_UNREACHED: Final = frozenset({"connect_failed", "spawn_failed"})
_BUSY: Final = frozenset({"http_429", "http_503"})
"""Codes of errors with which a provider says "not now"."""
_SECONDS: Final = re.compile(r"[0-9]{1,9}")
_LAST_WORDS: Final = frozenset({"cancelled_after_dispatch", "journal_lost", "rolled_back"})
"""Reasons of `unknown` that somebody wanted, or that are about more than one attempt."""


@dataclass(frozen=True, slots=True)
class MachineClock:
    """The machine's own clock, which nobody sets: seconds since its start `boot_id`, sleep included."""

    boot_id: str
    uptime_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """What time it is, by everything that can tell."""

    wall: datetime
    newest: datetime
    """The `at` of the journal's newest event."""
    machine: MachineClock


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """The first attempt, as its intent was recorded."""

    at: datetime
    idempotent: bool
    key_carrier: str
    dedupe_horizon_s: float | None
    machine: MachineClock | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An operation none of whose attempts runs; `contract` is today's."""

    contract: Contract
    write: bool
    attempts: int
    first: First | None
    """None where there was none."""
    doubtful: bool
    """Whether any attempt may have happened."""
    now: Clocks
    expires_at: datetime | None
    """When the command expires: nothing moves this."""
    lands_until: datetime | None = None
    """Until when an attempt that is proven not to have happened by then may still do so; None: none may."""


Obstacle: TypeAlias = Literal["not_deduplicated", "another_key", "clock_went_back", "past_horizon"]
"""What stands against (b)."""


@dataclass(frozen=True, slots=True)
class Again:
    """Another attempt, not before `at`."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Enough:
    """No other attempt; `why` is for the log."""

    why: Literal["not_asked_for", "settled", "no_attempts_left", "expired"] | Obstacle


def decide(case: Case, outcome: Outcome, chance: float) -> Again | Enough:
    """Return whether an operation whose newest attempt ended in `outcome` gets another, and when.

    `chance` is uniform in [0, 1).
    """
    own_s = delay_s(case.contract.retry_backoff_s, case.attempts, chance)
    wait_s = max(own_s, asked_s(outcome, case.now.wall))
    at = case.now.wall + timedelta(seconds=wait_s)
    refused = forbid(case, at)
    if refused is not None:
        return refused
    return Again(at) if can_be_bettered(outcome) else Enough("settled")


def forbid(case: Case, at: datetime) -> Enough | None:
    """Return why no further attempt may begin at `at`, now or later, whatever the newest one came to."""
    contract = case.contract
    if contract.retry != "same-key":
        return Enough("not_asked_for")
    if case.attempts >= contract.retry_attempts:
        return Enough("no_attempts_left")
    if case.expires_at is not None and at >= case.expires_at:
        return Enough("expired")
    obstacle = permit(case, at)
    return None if obstacle is None else Enough(obstacle)


def permit(case: Case, at: datetime) -> Obstacle | None:
    """Return what in rule R stands against another attempt at `at`, now or later; None where nothing does."""
    landing = case.lands_until is not None and at < case.lands_until
    if not case.write or not (case.doubtful or landing):
        return None
    first, contract = case.first, case.contract
    if first is None:
        return "not_deduplicated"
    horizons = (first.dedupe_horizon_s, contract.dedupe_horizon_s)
    if not (first.idempotent and contract.idempotent) or None in horizons:
        return "not_deduplicated"
    if not contract.carries_key or first.key_carrier != str(contract.key_carrier):
        return "another_key"
    elapsed = elapsed_s(first, case.now)
    if elapsed is None:
        return "clock_went_back"
    wait_s = (at - case.now.wall).total_seconds()
    ends_s = elapsed + wait_s + _budget_s(case, at)
    return None if ends_s < min(horizon for horizon in horizons if horizon is not None) else "past_horizon"


def elapsed_s(first: First, now: Clocks) -> float | None:
    """Return how long ago the first attempt was, by the clock that says most; None if one went backwards."""
    if now.wall < now.newest or now.wall < first.at:
        return None
    since = (now.wall - first.at).total_seconds()
    then = first.machine
    if then is None:
        return since
    if then.boot_id != now.machine.boot_id:
        # the machine was started after the attempt
        return max(since, now.machine.uptime_s)
    ticked = now.machine.uptime_s - then.uptime_s
    return None if ticked < 0 else max(since, ticked)


def delay_s(backoff_s: float, attempts: int, chance: float) -> float:
    """Return the seconds to wait after `attempts` attempts: `backoff_s` doubled with each, to a ceiling.

    Between half of that and all of it, so that many operations that failed together do not return together.
    """
    ceiling = max(BACKOFF_S_MAX, backoff_s)
    bound = min(ceiling, backoff_s * float(1 << min(attempts - 1, _DOUBLINGS_MAX)))
    return bound * (1 + chance) / 2


def asked_s(outcome: Outcome, now: datetime) -> float:
    """Return the seconds that a provider which said "not now" wants to be left alone: a floor for the wait.

    Its `Retry-After`, in seconds or as a date, and `BACKOFF_S_MAX` of it at most; 0 where it asked for none.
    """
    if not isinstance(outcome, OperationFailed) or outcome.error.get("code") not in _BUSY:
        return 0.0
    headers = outcome.result.get("headers") if isinstance(outcome.result, dict) else None
    asked = headers.get("retry-after") if isinstance(headers, dict) else None
    if not isinstance(asked, str):
        return 0.0
    if _SECONDS.fullmatch(asked):
        return min(float(asked), BACKOFF_S_MAX)
    try:
        until = parsedate_to_datetime(asked)
    except (ValueError, OverflowError):
        return 0.0
    # a date without a zone is no HTTP date; they are all in UTC
    seconds = (until.replace(tzinfo=until.tzinfo or UTC) - now).total_seconds()
    return min(max(seconds, 0.0), BACKOFF_S_MAX)


def can_be_bettered(outcome: Outcome) -> bool:
    """Whether another attempt could come to more than this one did."""
    match outcome:
        case OperationNotExecuted(reason=reason):
            return reason in _UNREACHED
        case OperationUnknown(reason=reason):
            return reason not in _LAST_WORDS
        case OperationFailed(error=error, error_means=means):
            return means != "reported" or error.get("code") in _BUSY
        case OperationSucceeded():
            return False


def _budget_s(case: Case, at: datetime) -> float:
    """How long an attempt that starts at `at` may take: its own budget, capped by the command's expiry."""
    own = case.contract.budget_s
    return own if case.expires_at is None else min(own, (case.expires_at - at).total_seconds())
