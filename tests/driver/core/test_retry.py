"""Which outcomes get another attempt, and when rule R forbids it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.core.conclusion import Outcome
from driver.core.contracts import Contract, HeaderKey, MetaKey
from driver.core.retry import (
    BACKOFF_S_MAX,
    Again,
    Case,
    Clocks,
    Enough,
    First,
    MachineClock,
    Obstacle,
    decide,
    delay_s,
    elapsed_s,
    permit,
)
from store.events import OperationFailed, OperationNotExecuted, OperationSucceeded, OperationUnknown
from store.lifecycle import Effect
from store.records import JsonObject, JsonValue

T0 = datetime(2026, 11, 29, 10, 40, tzinfo=UTC)
CONTRACT = Contract(
    idempotent=True,
    dedupe_horizon_s=100.0,
    key_carrier=MetaKey(),
    retry="same-key",
    retry_attempts=3,
    retry_backoff_s=1.0,
    execution_s=10.0,
)
FIRST = First(
    at=T0, idempotent=True, key_carrier="meta", dedupe_horizon_s=100.0, machine=MachineClock("boot-1", 500.0)
)


def clocks(after_s: float = 5.0) -> Clocks:
    """All clocks agree that so much time has passed."""
    now = T0 + timedelta(seconds=after_s)
    return Clocks(wall=now, newest=now, machine=MachineClock("boot-1", 500.0 + after_s))


CASE = Case(
    contract=CONTRACT, write=True, attempts=1, first=FIRST, doubtful=True, now=clocks(), expires_at=None
)
LOST = OperationUnknown(reason="connection_lost", phase="written", attempts=1)


def failed(code: str, means: str = "reported") -> OperationFailed:
    """An answer that is an error."""
    return OperationFailed(
        effect=Effect.NONE if means == "none" else Effect.UNKNOWN,
        error={"code": code, "message": "no"},
        error_means=means,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        result=None,
        receipt=None,
        attempts=1,
    )


@pytest.mark.parametrize(
    ("outcome", "again"),
    [
        (OperationNotExecuted(reason="connect_failed"), True),
        (OperationNotExecuted(reason="spawn_failed"), True),
        (OperationNotExecuted(reason="invalid_arguments"), False),
        (OperationNotExecuted(reason="unknown_tool"), False),
        (OperationNotExecuted(reason="cancelled"), False),
        (OperationNotExecuted(reason="expired"), False),
        (OperationNotExecuted(reason="deadline"), False),
        (OperationNotExecuted(reason="fenced"), False),
        (OperationNotExecuted(reason="draining"), False),
        (LOST, True),
        (replace(LOST, reason="execution_timeout"), True),
        (replace(LOST, reason="protocol_error"), True),
        (replace(LOST, reason="crash_window"), True),
        (replace(LOST, reason="cancelled_after_dispatch"), False),
        (replace(LOST, reason="journal_lost"), False),
        (failed("tool_error"), False),
        (failed("tool_error", "none"), True),
        (failed("tool_error", "unsettled"), True),
        (failed("http_429"), True),
        (failed("http_503"), True),
        (failed("http_500"), False),
        (failed("http_409", "unsettled"), True),
        (OperationSucceeded(result={}, receipt=None, attempts=1, duration_ms=1), False),
    ],
)
def test_what_another_try_can_better(outcome: Outcome, again: bool) -> None:
    """A last word is never tried again; silence, "not now" and an unreachable provider are."""
    assert isinstance(decide(CASE, outcome, 0.5), Again) == again


def test_never_is_never() -> None:
    """Without `retry = "same-key"` nothing is tried again, whatever would be safe."""
    case = replace(CASE, contract=replace(CONTRACT, retry="never"), doubtful=False)
    assert decide(case, OperationNotExecuted(reason="connect_failed"), 0.0) == Enough("not_asked_for")


@pytest.mark.parametrize(("attempts", "again"), [(1, True), (2, True), (3, False), (4, False)])
def test_attempts_are_counted_in_all(attempts: int, again: bool) -> None:
    """`retry_attempts` counts the first one too."""
    assert isinstance(decide(replace(CASE, attempts=attempts), LOST, 0.0), Again) == again


def test_the_expiry_of_the_command_is_a_ceiling() -> None:
    """An attempt that could only begin after it does not begin."""
    case = replace(CASE, expires_at=CASE.now.wall + timedelta(seconds=0.5))
    assert decide(case, LOST, 0.0) == Enough("expired")
    assert isinstance(
        decide(replace(case, expires_at=case.now.wall + timedelta(seconds=2)), LOST, 0.0), Again
    )


def test_the_wait_doubles_to_its_ceiling() -> None:
    """Half of the bound at least, all of it at most."""
    waits = [delay_s(1.0, attempts, 0.0) for attempts in range(1, 9)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]
    assert delay_s(1.0, 8, 0.999_999) < BACKOFF_S_MAX
    assert delay_s(60.0, 3, 0.0) == 30.0
    assert delay_s(1.0, 10_000, 0.0) == 15.0


ASKED: list[tuple[JsonValue, float]] = [
    ("7", 7.0),
    ("0", 0.0),
    ("86400", BACKOFF_S_MAX),
    ("Sun, 29 Nov 2026 10:40:17 GMT", 12.0),
    ("Sun, 29 Nov 2026 10:40:17 -0000", 12.0),
    ("Sun, 29 Nov 2026 10:39:00 GMT", 0.0),
    ("Sun, 29 Nov 2099 10:39:00 GMT", BACKOFF_S_MAX),
    ("-1", 0.0),
    ("1.5", 0.0),
    ("soon", 0.0),
    ("9" * 5_000, 0.0),
    (7, 0.0),
    (None, 0.0),
]


@pytest.mark.parametrize(("asked", "seconds"), ASKED)
@pytest.mark.parametrize("code", ["http_429", "http_503"])
def test_a_provider_that_says_when_is_not_asked_before(code: str, asked: JsonValue, seconds: float) -> None:
    """Its `Retry-After` is a floor for the wait, within bounds; what is none is not heeded."""
    busy = replace(failed(code), result={"status": 429, "headers": {"retry-after": asked}})
    again = decide(CASE, busy, 0.0)
    assert isinstance(again, Again)
    assert again.at - CASE.now.wall == timedelta(seconds=max(seconds, 0.5))


def test_only_not_now_can_put_off_the_next_attempt() -> None:
    """Any other failure waits as long as the contract says, whatever its headers say."""
    result: JsonObject = {"headers": {"retry-after": "7"}}
    again = decide(CASE, replace(failed("http_500", "unsettled"), result=result), 0.0)
    assert again == Again(CASE.now.wall + timedelta(seconds=0.5))


# ------------------------------------------------------------ rule R


@pytest.mark.parametrize(
    ("case", "obstacle"),
    [
        (CASE, None),
        (replace(CASE, contract=replace(CONTRACT, retry="never", idempotent=False)), "not_deduplicated"),
        (replace(CASE, first=replace(FIRST, idempotent=False)), "not_deduplicated"),
        (replace(CASE, first=replace(FIRST, dedupe_horizon_s=None)), "not_deduplicated"),
        (replace(CASE, first=replace(FIRST, key_carrier="none")), "another_key"),
        (replace(CASE, contract=replace(CONTRACT, key_carrier=HeaderKey("X"))), "another_key"),
        (replace(CASE, first=replace(FIRST, dedupe_horizon_s=15.0)), "past_horizon"),
        (replace(CASE, first=replace(FIRST, dedupe_horizon_s=15.1)), None),
        (replace(CASE, contract=replace(CONTRACT, dedupe_horizon_s=15.0)), "past_horizon"),
        (replace(CASE, now=clocks(90.0)), "past_horizon"),
        (replace(CASE, now=clocks(89.9)), None),
        (replace(CASE, now=clocks(95.0), expires_at=T0 + timedelta(seconds=99)), None),
        (replace(CASE, now=replace(clocks(), newest=T0 + timedelta(seconds=6))), "clock_went_back"),
        (replace(CASE, now=replace(clocks(), wall=T0 - timedelta(seconds=1))), "clock_went_back"),
        (replace(CASE, now=replace(clocks(), machine=MachineClock("boot-1", 499.0))), "clock_went_back"),
        (replace(CASE, now=replace(clocks(), machine=MachineClock("boot-1", 595.0))), "past_horizon"),
        (replace(CASE, now=replace(clocks(), machine=MachineClock("boot-2", 1.0))), None),
        (replace(CASE, now=replace(clocks(), machine=MachineClock("boot-2", 95.0))), "past_horizon"),
    ],
)
def test_a_write_that_may_have_happened(case: Case, obstacle: Obstacle | None) -> None:
    """Only while the provider deduplicates, by the recorded contract, today's, and every clock."""
    assert permit(case, case.now.wall) == obstacle


@pytest.mark.parametrize("case", [replace(CASE, doubtful=False), replace(CASE, write=False)])
def test_what_cannot_be_a_second_effect_needs_no_horizon(case: Case) -> None:
    """A read, and a write of which no attempt can have happened."""
    late = replace(case, now=clocks(10_000.0), contract=replace(CONTRACT, retry="never", idempotent=False))
    assert permit(late, late.now.wall) is None


def test_the_wait_counts_towards_the_horizon() -> None:
    """What may begin now may be too late after its backoff."""
    case = replace(CASE, now=clocks(89.5), attempts=1)
    assert permit(case, case.now.wall) is None
    assert decide(case, LOST, 0.0) == Enough("past_horizon")


@given(wall=st.floats(0, 200), newest=st.floats(-200, 200), uptime=st.floats(0, 200), other=st.booleans())
def test_no_clock_alone_can_shorten_the_time(
    wall: float, newest: float, uptime: float, *, other: bool
) -> None:
    """Elapsed time is never less than any clock says, and a contradiction closes the horizon."""
    machine = MachineClock("boot-2" if other else "boot-1", uptime if other else 500.0 + uptime)
    now = Clocks(wall=T0 + timedelta(seconds=wall), newest=T0 + timedelta(seconds=newest), machine=machine)
    elapsed = elapsed_s(FIRST, now)
    if now.newest > now.wall:
        assert elapsed is None
    else:
        assert elapsed is not None
        assert elapsed >= max(wall, newest, uptime) - 1e-5


def test_an_intent_without_a_machine_clock_is_timed_by_the_others() -> None:
    """Older journals have none."""
    assert elapsed_s(replace(FIRST, machine=None), clocks(7.0)) == 7.0
