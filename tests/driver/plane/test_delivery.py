"""Commands on their way: delivered until there is a receipt, and known to whoever may have run them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from anyio import to_thread

from driver.core.frames import Refused, Retired
from driver.plane.ledger import open_ledger
from store.chain import digest, extend
from store.events import CommandRefused, DriverUnfenced, LateResult, OperationFailed, OperationReconciled
from store.lifecycle import Effect
from store.records import Chain, CommandId, Origin
from tests.driver.plane.world import (
    DIGEST,
    NOTE,
    SUCCEEDED,
    UNKNOWN,
    Driver,
    Journal,
    Socket,
    copy_of,
    operation,
    running,
)

pytestmark = pytest.mark.anyio
ONE = CommandId("cmd-1")


async def acknowledged(socket: Socket, seq: int) -> None:
    """Wait for the acknowledgement of `seq`; deliveries may come in between."""
    while (frame := await socket.hear())["type"] != "ack" or frame["seq"] < seq:
        pass


async def test_a_command_is_handed_to_its_driver_at_once(driver: Driver) -> None:
    """As it was given, and as one that no journal has had before."""
    async with driver.session() as socket:
        data = {"tool": "a/b", "arguments": {"n": 10**30, "x": [1.5, None]}, "unknown": "kept"}
        await driver.plane.send(command_id=ONE, data=data, expires_in_ms=5_000)
        frame = await socket.hear("command")
    assert (frame["command_id"], frame["run_id"], frame["kind"]) == (ONE, "run-1", "tool.call")
    assert (frame["data"], frame["expires_in_ms"], frame["delivered_to"]) == (data, 5_000, [])


async def test_a_command_waits_for_its_driver(driver: Driver) -> None:
    """Commands that were given while nobody was there are handed out in their order."""
    for number in range(3):
        assert (await driver.plane.send(command_id=f"cmd-{number}"))["state"] == "queued"
    async with driver.session() as socket:
        assert [(await socket.hear("command"))["command_id"] for _ in range(3)] == ["cmd-0", "cmd-1", "cmd-2"]
        await socket.silence()


async def test_without_a_receipt_it_is_delivered_again_after_a_reconnect(driver: Driver) -> None:
    """And names the journals that had it, this one among them; on one connection it is sent once."""
    await driver.plane.send(command_id=ONE)
    async with driver.session() as socket:
        assert (await socket.hear("command"))["delivered_to"] == []
        await driver.plane.send(command_id="cmd-2")
        assert (await socket.hear("command"))["command_id"] == "cmd-2"
        await socket.silence()
    async with driver.session() as socket:
        again = [await socket.hear("command") for _ in range(2)]
        assert [frame["delivered_to"] for frame in again] == [[driver.journal.journal_id]] * 2


async def test_with_a_receipt_it_is_never_delivered_again(driver: Driver) -> None:
    """Whatever the receipt says."""
    await driver.plane.send(command_id=ONE)
    await driver.plane.send(command_id="cmd-2")
    await driver.plane.send(command_id="cmd-3")
    async with driver.session() as socket:
        await socket.say(*driver.journal.run("cmd-1"), *driver.journal.run("cmd-2", UNKNOWN))
        refusal = CommandRefused(code="invalid", message="m", content_digest=DIGEST)
        await socket.say(driver.journal.commit(refusal, "cmd-3"))
        await driver.plane.until("cmd-3", "refused")
    async with driver.session() as socket:
        await socket.silence()


async def test_a_new_journal_is_told_who_had_the_command(driver: Driver) -> None:
    """The sandbox was lost: its successor must not run the command as if it were new."""
    await driver.plane.send(command_id=ONE)
    async with driver.session() as socket:
        await socket.hear("command")
    successor = Driver(plane=driver.plane)
    async with successor.session() as socket:
        assert (await socket.hear("command"))["delivered_to"] == [driver.journal.journal_id]
    third = Driver(plane=driver.plane)
    async with third.session() as socket:
        named = (await socket.hear("command"))["delivered_to"]
        assert named == sorted([driver.journal.journal_id, successor.journal.journal_id])


async def test_a_delivery_is_written_down_before_it_is_sent(driver: Driver, tmp_path: Path) -> None:
    """What the file says when the frame arrives is what a plane that dies now would know."""
    await driver.plane.send(command_id=ONE)
    async with driver.session() as socket:
        await socket.hear("command")
        folder = await copy_of(driver.plane, tmp_path)
    ledger = await to_thread.run_sync(open_ledger, folder / "plane.db")
    rows = await ledger.read(
        lambda db: db.execute("SELECT journal_id, sent, declined FROM deliveries").fetchall()
    )
    await to_thread.run_sync(ledger.close)
    assert [tuple(row) for row in rows] == [(driver.journal.journal_id, 1, 0)]


@pytest.mark.parametrize("code", ["overloaded", "draining", "no_room"])
async def test_want_of_room_strikes_the_journal_off_and_is_tried_again(driver: Driver, code: str) -> None:
    """It has certainly not run the command; after a while it is asked once more, over the same connection."""
    await driver.plane.send(command_id=ONE)
    async with driver.session() as socket:
        await socket.hear("command")
        await socket.say(Refused(command_id=ONE, code=code))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        await driver.plane.until(ONE, "queued")
        again = await socket.hear("command")
        assert (again["command_id"], again["delivered_to"]) == (ONE, [])


async def test_a_journal_is_struck_off_only_when_it_answered_every_delivery(driver: Driver) -> None:
    """One delivery was never answered: it may have been executed, whatever the next one was told."""
    await driver.plane.send(command_id=ONE)
    async with driver.session() as socket:
        await socket.hear("command")
    async with driver.session() as socket:
        await socket.hear("command")
        await socket.say(Refused(command_id=ONE, code="overloaded"))
        assert (await socket.hear("command"))["delivered_to"] == [driver.journal.journal_id]


async def test_a_refusal_is_counted_once(driver: Driver) -> None:
    """More answers than deliveries prove no more than the deliveries that there were."""
    await driver.plane.send(command_id=ONE)
    async with driver.session() as socket:
        await socket.hear("command")
        await socket.say(*[Refused(command_id=ONE, code="overloaded")] * 3)
        await socket.hear("command")
    view = await driver.plane.get(f"/v1/commands/{ONE}")
    assert view["delivered_to"] == [driver.journal.journal_id]


async def test_a_fenced_driver_gets_nothing_until_it_is_unfenced(driver: Driver) -> None:
    """It would refuse, and still count as one that had the command."""
    await driver.plane.send(command_id=ONE)
    async with driver.session(state="fenced") as socket:
        await socket.silence()
        assert (await driver.plane.get(f"/v1/commands/{ONE}"))["state"] == "queued"
        await socket.say(driver.journal.commit(DriverUnfenced(reason="superseded", actor="operator:0")))
        await acknowledged(socket, 1)
        assert (await socket.hear("command"))["delivered_to"] == []


async def test_a_driver_that_turns_out_fenced_keeps_the_command_on_its_list(driver: Driver) -> None:
    """`fenced` strikes nothing; nothing more is sent, and after the unfencing the command comes again."""
    await driver.plane.send(command_id=ONE)
    async with driver.session() as socket:
        await socket.hear("command")
        await socket.say(Refused(command_id=ONE, code="fenced"))
        await socket.silence()
        await driver.plane.send(command_id="cmd-2")
        await socket.silence()
        await socket.say(driver.journal.commit(DriverUnfenced(reason="superseded", actor="operator:0")))
        await acknowledged(socket, 1)
        assert (await socket.hear("command"))["delivered_to"] == [driver.journal.journal_id]
        assert (await socket.hear("command"))["command_id"] == "cmd-2"


async def test_a_conflict_is_not_delivered_again(driver: Driver) -> None:
    """The driver knows the id with other content: asking again changes nothing, and a person has to look."""
    await driver.plane.send(command_id=ONE)
    async with driver.session() as socket:
        await socket.hear("command")
        await socket.say(Refused(command_id=ONE, code="conflict"))
        assert (await driver.plane.until(ONE, "conflict"))["in_doubt"] is True
    async with driver.session() as socket:
        await socket.silence()


async def test_retired_is_as_good_as_a_receipt(driver: Driver) -> None:
    """Its events were pruned long ago; what is left of them settles the command."""
    await driver.plane.send(command_id=ONE)
    async with driver.session() as socket:
        await socket.hear("command")
        await socket.say(
            Retired(
                command_id=ONE,
                operation_id=operation(ONE),
                kind="operation.succeeded",
                effect="occurred",
                journal_id=driver.journal.journal_id,
                seq=7,
            )
        )
        view = await driver.plane.until(ONE, "succeeded")
    assert (view["effect"], view["receipt"], view["in_doubt"]) == ("occurred", None, False)


async def test_what_the_drivers_tombstones_may_have_forgotten_is_not_delivered(
    driver: Driver, tmp_path: Path
) -> None:
    """A command older than `tombstone_days` stays as it is; one that is younger is delivered."""
    for name in (ONE, "cmd-2"):
        await driver.plane.send(command_id=name)
    folder = await copy_of(driver.plane, tmp_path)
    ledger = await to_thread.run_sync(open_ledger, folder / "plane.db")
    age = "UPDATE commands SET created_at='2020-01-01T00:00:00.000000Z' WHERE command_id='cmd-1'"
    await ledger.change(lambda db: db.execute(age))
    await to_thread.run_sync(ledger.close)
    async with running(folder) as plane, Driver(plane=plane).session() as socket:
        assert (await socket.hear("command"))["command_id"] == "cmd-2"
        await socket.silence()


async def test_the_states_of_a_command(driver: Driver) -> None:
    """Queued, sent, accepted, and the word of its receipt; in doubt when its driver is away in between."""
    plane, journal = driver.plane, driver.journal
    await plane.send(command_id=ONE)
    assert (await plane.until(ONE, "queued"))["in_doubt"] is False
    async with driver.session():
        assert (await plane.until(ONE, "sent"))["in_doubt"] is False
    assert (await plane.until(ONE, "in_doubt"))["in_doubt"] is True
    accepted, started, succeeded = journal.run(ONE)
    async with driver.session() as socket:
        await socket.say(accepted, started)
        assert (await plane.until(ONE, "accepted"))["in_doubt"] is False
    assert (await plane.until(ONE, "in_doubt"))["in_doubt"] is True
    async with driver.session() as socket:
        await socket.say(succeeded)
        view = await plane.until(ONE, "succeeded")
    assert (view["in_doubt"], view["effect"], view["receipt_kind"]) == (
        False,
        "occurred",
        "operation.succeeded",
    )
    assert view["receipt"]["chain"] == journal.chain


@pytest.mark.parametrize(
    ("later", "effect"),
    [
        (LateResult(attempt=1, effect=Effect.OCCURRED, result=None, receipt=None), "occurred"),
        (
            OperationReconciled(
                effect=Effect.NONE, actor="operator:0", basis="operator", note="", evidence=(), started_seq=2
            ),
            "none",
        ),
        (
            OperationReconciled(
                effect=Effect.UNKNOWN,
                actor="operator:0",
                basis="operator",
                note="",
                evidence=(),
                started_seq=2,
            ),
            "unknown",
        ),
    ],
    ids=["late-answer", "verdict", "a-verdict-that-says-unknown"],
)
async def test_an_unknown_receipt_leaves_doubt_until_it_is_settled(
    driver: Driver, later: LateResult | OperationReconciled, effect: str
) -> None:
    """The receipt stands; what is learned later changes what is known of its effect."""
    plane = driver.plane
    await plane.send(command_id=ONE)
    async with driver.session() as socket:
        await socket.say(*driver.journal.run(ONE, UNKNOWN))
        view = await plane.until(ONE, "unknown")
        assert (view["in_doubt"], view["effect"]) == (True, "unknown")
        assert (await plane.get("/v1/runs"))["items"][0]["state"] == "in_doubt"
        await socket.say(driver.journal.commit(later, ONE))
        await acknowledged(socket, 4)
        view = await plane.get(f"/v1/commands/{ONE}")
    assert (view["state"], view["effect"]) == ("unknown", effect)
    assert (await plane.get("/v1/runs"))["items"][0]["state"] == "settled"


@pytest.mark.parametrize(("means", "doubt"), [("reported", False), ("unsettled", True)])
async def test_a_failure_leaves_doubt_only_where_the_contract_says_so(
    driver: Driver, means: str, doubt: bool
) -> None:
    """`error_means` is the tool's contract, and comes with the receipt."""
    failed = OperationFailed(
        effect=Effect.UNKNOWN,
        error={"code": 1, "message": "m"},
        error_means=means,  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        result=None,
        receipt=None,
        attempts=1,
    )
    await driver.plane.send(command_id=ONE)
    async with driver.session() as socket:
        await socket.say(*driver.journal.run(ONE, failed))
        assert (await driver.plane.until(ONE, "failed"))["in_doubt"] is doubt


async def test_the_first_receipt_stands(driver: Driver) -> None:
    """After an accepted rollback the same command may get another one, of a new journal."""
    await driver.plane.send(command_id=ONE)
    async with driver.session() as socket:
        await socket.say(*driver.journal.run(ONE))
        await driver.plane.until(ONE, "succeeded")
    driver.journal = Journal()
    async with driver.session() as socket:
        await socket.say(driver.journal.commit(NOTE), *driver.journal.run(ONE, UNKNOWN))
        await acknowledged(socket, 4)
    view = await driver.plane.get(f"/v1/commands/{ONE}")
    assert (view["state"], view["receipt"]["kind"]) == ("succeeded", SUCCEEDED.KIND)


async def test_the_sandboxs_own_commands_are_known_too(driver: Driver) -> None:
    """Calls through its gateway come as events only; they count in their run, and are never delivered."""
    async with driver.session() as socket:
        await socket.say(*driver.journal.run("gw-1", UNKNOWN, Origin.GATEWAY))
        view = await driver.plane.until("gw-1", "unknown")
    assert (view["origin"], view["in_doubt"], view["data"]) == ("gateway", True, None)
    assert (await driver.plane.get("/v1/runs"))["items"][0]["in_doubt"] == 1
    async with driver.session() as socket:
        await socket.silence()


async def test_a_read_that_is_unknown_leaves_nobody_in_doubt(driver: Driver) -> None:
    """It can be run again at any time."""
    async with driver.session() as socket:
        await socket.say(*driver.journal.run(ONE, UNKNOWN, Origin.GATEWAY, write=False))
        assert (await driver.plane.until(ONE, "unknown"))["in_doubt"] is False


async def test_a_requeued_receipt_is_taken_for_the_one_that_was_refused(driver: Driver) -> None:
    """It ends the command; what was learned about its effect meanwhile stands."""
    plane, journal = driver.plane, driver.journal
    await plane.send(command_id=ONE)
    verdict = OperationReconciled(
        effect=Effect.NONE, actor="operator:0", basis="operator", note="", evidence=(), started_seq=2
    )
    async with driver.session() as socket:
        accepted, started, refused = journal.run(ONE, UNKNOWN)
        # malformed as this driver made it, and so part of its chain
        body = refused.replace('"origin":"plane"', '"origin":"moon"').rpartition(',"chain"')[0] + "}"
        journal.chain = extend(Chain(json.loads(started)["chain"]), digest(body.encode()))
        journal.frames[-1] = f'{body[:-1]},"chain":"{journal.chain}"}}'
        await socket.say(accepted, started, journal.frames[-1])
        while (await socket.hear())["type"] != "nack":
            pass
        await socket.say(journal.commit(verdict, ONE))
        await acknowledged(socket, 4)
        assert (await plane.get(f"/v1/commands/{ONE}"))["receipt_kind"] is None
        await socket.say(journal.commit(replace(UNKNOWN, requeue_of=3), ONE))
        view = await plane.until(ONE, "unknown")
    assert (view["receipt_kind"], view["effect"], view["in_doubt"]) == ("operation.unknown", "none", False)
