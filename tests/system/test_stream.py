"""What the plane may do to the stream: narrow it, pause it, refuse one event, or say that it knows better."""

import pytest

from tests.system.audit import must_hold
from tests.system.history import Json
from tests.system.plane import call, scripted_plane
from tests.system.sandbox import sandbox
from tests.system.zygote import Zygote

pytestmark = pytest.mark.anyio


async def test_a_window_of_one_lets_everything_through_one_by_one(zygote: Zygote) -> None:
    """The plane sees each event only after it acknowledged the one before, in order, and all of them."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        plane.window = 1
        life = made.start()
        await plane.give(*(call(f"cmd-{number}", n=number) for number in range(20)))
        await plane.answered()
        assert await life.stop() == 0
        await must_hold(made)


async def test_a_refused_event_is_parked_and_holds_up_nothing(zygote: Zygote) -> None:
    """I6: a nack `invalid` parks its one event for good; what follows goes on, after a restart too."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:

        def poison(event: Json) -> Json | None:
            if event["command_id"] == "cmd-1" and event["terminal"]:
                return {"type": "nack", "seq": event["seq"], "code": "invalid", "message": "as the test says"}
            return None

        plane.on_nack = poison
        life = made.start()
        await plane.give(call("cmd-1", n=1))
        await plane.answered()
        parked = plane.history.receipts["cmd-1"]
        await plane.give(call("cmd-2", n=2))
        await plane.receipt_of("cmd-2")
        await plane.until(lambda: plane.history.acked == plane.history.last_seq)
        await life.logged("event_parked")
        assert await life.stop() == 0
        life = made.start()
        await plane.until(lambda: len(plane.hellos) == 2)
        await plane.give(call("cmd-3", n=3))
        await plane.receipt_of("cmd-3")
        assert plane.repeats[plane.history.journal_id, parked] == 0
        assert await life.stop() == 0
        await must_hold(made)


async def test_a_busy_plane_gets_the_same_event_again_later(zygote: Zygote) -> None:
    """A nack `busy` parks nothing: the stream pauses, and goes on with the event that was turned away."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        turned_away: list[int] = []

        def busy(event: Json) -> Json | None:
            if event["terminal"] and event["seq"] not in turned_away:
                turned_away.append(event["seq"])
                return {"type": "nack", "seq": event["seq"], "code": "busy", "retry_after_ms": 20}
            return None

        plane.on_nack = busy
        life = made.start()
        await plane.give(call("cmd-1", n=1))
        await plane.until(lambda: plane.history.acked >= plane.history.receipts.get("cmd-1", 1_000))
        assert plane.repeats[plane.history.journal_id, turned_away[0]] == 1
        assert await life.stop() == 0
        await must_hold(made)


async def test_a_conflict_that_the_plane_sees_fences(zygote: Zygote) -> None:
    """A nack `conflict` says that other bytes were seen under this seq: the daemon stops acting, for good."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        plane.on_nack = lambda event: (
            {"type": "nack", "seq": event["seq"], "code": "conflict", "message": "other bytes"}
            if event["terminal"]
            else None
        )
        life = made.start()
        await plane.give(call("cmd-1", n=1))
        await made.events_until(lambda event: event["kind"] == "driver.fenced")
        await plane.give(call("cmd-2", n=2))
        assert (await plane.answer_to("cmd-2"))["code"] == "fenced"
        assert await life.stop() == 0
        await made.quiet()
        assert len(made.effects()) == 1


async def test_a_plane_that_rejects_is_asked_again(zygote: Zygote) -> None:
    """A `reject` ends the connection, not the daemon: it comes back, and works once it is welcome."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        plane.on_hello = lambda _hello, _history: {
            "type": "reject",
            "code": "maintenance",
            "message": "come back later",
        }
        life = made.start()
        await plane.until(lambda: plane.hellos)
        plane.on_hello = None
        plane.cut()
        await plane.give(call("cmd-1", n=1))
        await plane.receipt_of("cmd-1")
        assert await life.stop() == 0
        await must_hold(made)


async def test_a_command_that_comes_twice_at_once_is_one_command(zygote: Zygote) -> None:
    """Deliveries in one batch, before the acceptance is durable, during the call and after it: one effect."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        gate = made.root / "gate"
        life = made.start()
        await plane.connected()
        await plane.give(call("cmd-1", "counter/slow", until=str(gate)))
        for _ in range(5):
            await plane.deliver("cmd-1")
        await made.effects_reach(1)
        for _ in range(5):
            await plane.deliver("cmd-1")
        gate.touch()
        await plane.answered()
        await plane.redeliver("cmd-1")
        assert await life.stop() == 0
        await must_hold(made)
        assert len(made.effects()) == 1
