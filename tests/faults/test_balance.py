"""The figures that must be 0 are counted from what a plane and a provider have seen."""

from collections import Counter

import anyio
import pytest

from tests.faults.balance import Balance
from tests.faults.lane import CONTRADICTING_RECEIPTS, DUPLICATE_EFFECTS, LOST_RECEIPTS, ORPHANS
from tests.system import sandbox as system
from tests.system.audit import key_of
from tests.system.history import History
from tests.system.plane import Order, ScriptedPlane, call
from tests.system.sandbox import sandbox
from tests.system.zygote import Zygote

pytestmark = pytest.mark.anyio


def plane_with(receipt: str | None) -> ScriptedPlane:
    """Return a plane that has given one command, and has this kind of receipt for it, or none."""
    plane = ScriptedPlane()
    plane.orders["cmd-1"] = Order(command=call("cmd-1", n=1))
    history = plane.histories["journal"] = History("journal")
    if receipt is not None:
        history.frames.append(f'{{"kind": "{receipt}"}}'.encode())
        history.receipts["cmd-1"] = 1
    return plane


def figures(plane: ScriptedPlane, executed: int) -> dict[str, int]:
    """Return the figures that are not 0, where the command was executed so often."""
    balance = Balance()
    key = key_of(plane.orders["cmd-1"].command)
    balance.count(plane, Counter({key: executed} if executed else {}))
    return {name: count for name, count in balance.figures.items() if count}


def test_what_is_whole_counts_nothing() -> None:
    """One execution, and the receipt that says so."""
    assert figures(plane_with("operation.succeeded"), 1) == {}
    assert figures(plane_with("operation.unknown"), 0) == {}


def test_a_command_without_a_receipt_is_a_lost_one() -> None:
    """Whatever has become of it."""
    assert figures(plane_with(None), 1) == {LOST_RECEIPTS: 1}


def test_a_second_execution_is_a_duplicate_effect_and_makes_its_receipt_untrue() -> None:
    """Each one more is counted."""
    expected = {DUPLICATE_EFFECTS: 2, CONTRADICTING_RECEIPTS: 1}
    assert figures(plane_with("operation.succeeded"), 3) == expected


def test_a_receipt_that_is_not_so_contradicts() -> None:
    """As does whatever the plane itself has noted against the rules: a second receipt, other bytes."""
    assert figures(plane_with("operation.not_executed"), 1) == {CONTRADICTING_RECEIPTS: 1}
    plane = plane_with("operation.succeeded")
    plane.histories["journal"].violations.append("a second receipt")
    assert figures(plane, 1) == {CONTRADICTING_RECEIPTS: 1}


async def test_a_server_that_outlives_its_daemon_is_an_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted, and nothing is quiet while it is there."""
    zygote, balance = Zygote(), Balance()
    try:
        async with sandbox(zygote, None) as made:
            async with await anyio.open_process(["sh", "-c", "read line", str(made.ledger)]) as server:
                monkeypatch.setattr(system, "PATIENCE_S", 0.0)
                with pytest.raises(AssertionError, match=f"outlives its daemon, process {server.pid}"):
                    await made.quiet()
                monkeypatch.undo()
                server.kill()
            balance.count_in(made, ScriptedPlane())
    finally:
        zygote.close()
    assert balance.figures[ORPHANS] == 1
