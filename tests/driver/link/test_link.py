"""The link against a real WebSocket server: the stream, reconnects, commands, fences."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs
from websockets.exceptions import ConnectionClosed

from driver.link.courier import WAITING_MAX
from driver.link.settings import LinkSettings
from store.records import Chain
from tests.driver.engine.rig import Rig
from tests.driver.link.stage import Linked, Plane, Wire, dead_after, eventually, linked, serving

pytestmark = pytest.mark.anyio


async def first_contact(daemon: Linked, plane: Plane, *, window: int = 256) -> Wire:
    """Welcome the daemon, whose journal the plane has not seen."""
    wire = await plane.accept()
    await wire.welcome(window=window)
    await eventually(lambda: daemon.link.statistics().connected)
    return wire


async def test_committed_events_arrive_in_order_and_are_acknowledged(tmp_path: Path) -> None:
    """What the journal commits goes out byte-identical, and the watermark comes back with the next commit."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await first_contact(daemon, plane)
        events = [*await daemon.commit(3), *await daemon.commit(2)]
        assert [await wire.hear_raw() for _ in events] == [event.body for event in events]
        await wire.say(type="ack", seq=5)
        await eventually(lambda: daemon.link.statistics().acked_seq == 5)
        await daemon.commit()
        assert daemon.rig.journal.statistics().acked_seq == 5
        assert daemon.desk.confirmations == 1


async def test_hello_says_who_and_where(tmp_path: Path) -> None:
    """The first frame is hello; the request carries the token, the subprotocol and our own agent's name."""
    async with serving() as plane, linked(tmp_path, plane.url):
        wire = await plane.accept()
        hello = await wire.welcome()
        assert (hello["protocol"], hello["driver_id"], hello["state"]) == (1, "sbx-1", "ready")
        assert {"tool.call", "run.end", "probe", "compensate", "run.compensate"} <= {*hello["capabilities"]}
        assert wire.headers["authorization"] == "Bearer secret-of-the-tests"
        assert wire.headers["user-agent"] == "effectd/test"
        assert wire.headers["sec-websocket-protocol"] == "effectd.v1"
        assert "sec-websocket-extensions" not in wire.headers


async def test_a_backlog_of_any_length_arrives(tmp_path: Path) -> None:
    """What was committed while nobody listened is read back in pages, no faster than the window allows."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        for _ in range(3):
            await daemon.commit(200)
        wire = await first_contact(daemon, plane, window=64)
        seen = 0
        while seen < 600:
            frames = await wire.take(min(64, 600 - seen))
            assert [frame["seq"] for frame in frames] == list(range(seen + 1, seen + len(frames) + 1))
            seen += len(frames)
            if seen == 64:
                assert await wire.is_silent_for(0.1), "more than the window allows was in flight"
            await wire.say(type="ack", seq=seen)


async def test_a_cut_connection_is_taken_up_where_the_plane_stands(tmp_path: Path) -> None:
    """After a cut, the daemon reconnects soon, and resends from the plane's watermark, byte for byte."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await first_contact(daemon, plane)
        events = await daemon.commit(3)
        await wire.take(3)
        wire.cut()
        again = await plane.accept()
        await again.welcome(1, events[0].chain)
        assert [await again.hear_raw() for _ in range(2)] == [event.body for event in events[1:]]
        assert daemon.link.statistics().attempts == 0


async def test_hello_tells_an_acknowledgement_that_is_not_written_yet(tmp_path: Path) -> None:
    """The journal writes a watermark with its next commit; the next connection knows of it before that."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await first_contact(daemon, plane)
        events = await daemon.commit(3)
        await wire.take(3)
        await wire.say(type="ack", seq=2)
        await eventually(lambda: daemon.link.statistics().acked_seq == 2)
        wire.cut()
        again = await plane.accept()
        hello = await again.welcome(2, events[1].chain)
        assert (hello["last_seq"], hello["acked_seq"]) == (3, 2)


async def test_what_the_plane_has_lost_is_not_acknowledged_by_a_mark_that_waits(tmp_path: Path) -> None:
    """A `welcome` wins over an older acknowledgement, though the journal has not written that one yet."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await first_contact(daemon, plane)
        await daemon.commit(3)
        await wire.take(3)
        await wire.say(type="ack", seq=3)
        await eventually(lambda: daemon.link.statistics().acked_seq == 3)
        wire.cut()
        again = await first_contact(daemon, plane)
        await again.take(3)
        await daemon.commit()
        assert daemon.rig.journal.statistics().acked_seq == 0


async def test_no_close_code_ends_the_link(tmp_path: Path) -> None:
    """Whatever code the plane closes with, the daemon comes back."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        for code in (1000, 1001, 1008, 1011, 1012, 4002, 4999):
            wire = await first_contact(daemon, plane)
            await wire.close(code, "for a test")
            await eventually(lambda: not daemon.link.statistics().connected)


async def test_a_command_is_answered_in_the_stream(tmp_path: Path) -> None:
    """Acceptance and receipt come as events; the same command again gets the same bytes again."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await first_contact(daemon, plane)
        await wire.command("cmd-1")
        first = [await wire.hear_raw(), await wire.hear_raw()]
        await wire.command("cmd-1")
        assert [await wire.hear_raw(), await wire.hear_raw()] == first
        await wire.command("cmd-1", data={"outcome": "other"})
        refused = await wire.hear()
        assert (refused["type"], refused["code"]) == ("refused", "conflict")


async def test_a_cut_in_mid_delivery_cancels_nothing(tmp_path: Path) -> None:
    """A command whose socket dies while it is being committed is accepted all the same."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await first_contact(daemon, plane)
        daemon.desk.gate = anyio.Event()
        await wire.command("cmd-1")
        await eventually(lambda: daemon.desk.batches == [1])
        wire.cut()
        again = await plane.accept()
        await again.welcome()
        daemon.desk.gate.set()
        accepted = await again.hear()
        assert (accepted["kind"], accepted["command_id"]) == ("command.accepted", "cmd-1")


async def test_deliveries_share_commits_and_do_not_hold_up_the_reader(tmp_path: Path) -> None:
    """While one batch is being committed, commands pile up into the next, and acks are taken."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await first_contact(daemon, plane)
        (event,) = await daemon.commit()
        await wire.hear()
        daemon.desk.gate = anyio.Event()
        for number in range(50):
            await wire.command(f"cmd-{number}", kind="run.cancel")
        await wire.say(type="ack", seq=event.seq)
        await eventually(lambda: daemon.link.statistics().acked_seq == event.seq)
        daemon.desk.gate.set()
        frames = await wire.take(100)
        assert {frame["command_id"] for frame in frames} == {f"cmd-{number}" for number in range(50)}
        assert len(daemon.desk.batches) <= 3
        assert sum(daemon.desk.batches) == 50


async def test_a_desk_that_is_behind_stops_the_reader(tmp_path: Path) -> None:
    """Commands beyond a bound wait in the plane's socket, not in this process's memory; none is lost."""
    count = WAITING_MAX + 200
    # pongs wait in the socket, too: a patient link, so that a busy machine does not make it look dead
    patient = dead_after(60)
    async with serving(write_limit=2**12) as plane, linked(tmp_path, plane.url, settings=patient) as daemon:
        wire = await first_contact(daemon, plane, window=1_024)
        daemon.desk.gate = anyio.Event()

        async def flood() -> None:
            for number in range(count):
                await wire.command(f"cmd-{number}", kind="run.cancel")
            sent.set()

        sent = anyio.Event()
        seen: set[str] = set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood)
            waiting = daemon.link._courier._waiting
            await eventually(lambda: len(waiting) >= WAITING_MAX)
            await sent.wait()
            await anyio.wait_all_tasks_blocked()
            assert len(waiting) == WAITING_MAX
            daemon.desk.gate.set()
            for seq in range(1, 2 * count + 1):
                frame = await wire.hear()
                assert frame["seq"] == seq
                seen.add(frame["command_id"])
                if seq % 256 == 0:
                    await wire.say(type="ack", seq=seq)
        assert len(seen) == count


async def test_a_desk_that_is_behind_for_too_long_ends_the_link_and_loses_nothing(tmp_path: Path) -> None:
    """Pongs wait behind commands that nobody reads: the link ends, and says why; the plane delivers again."""
    count = WAITING_MAX + 200
    async with (
        serving(write_limit=2**12) as plane,
        linked(tmp_path, plane.url, settings=dead_after(3.0)) as daemon,
    ):
        wire = await first_contact(daemon, plane, window=1_024)
        daemon.desk.gate = anyio.Event()

        async def flood() -> None:
            with suppress(ConnectionClosed):
                for number in range(count):
                    await wire.command(f"cmd-{number}", kind="run.cancel")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood)
            await eventually(lambda: "the journal was behind" in (daemon.link.statistics().last_error or ""))
        assert not daemon.desk.gate.is_set()
        daemon.desk.gate.set()
        wire = await plane.accept()
        await wire.welcome(window=1_024)
        await wire.command("cmd-again", kind="run.cancel")
        seen: set[str] = set()
        while "cmd-again" not in seen:
            frame = await wire.hear()
            seen.add(frame["command_id"])
            await wire.say(type="ack", seq=frame["seq"])


async def test_a_poison_event_becomes_a_dead_letter(tmp_path: Path) -> None:
    """A nack parks the event in the journal, for good: the next connection sees a gap in its place."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await first_contact(daemon, plane)
        events = await daemon.commit(3)
        await wire.take(3)
        await wire.say(type="nack", seq=2, code="invalid", message="poison")
        await daemon.commit()
        assert (await wire.hear())["seq"] == 4
        letters = await daemon.rig.journal.read(lambda view: view.dead_letters(0, 10))
        assert [(letter.seq, letter.code) for letter in letters] == [(2, "invalid")]
        wire.cut()
        again = await plane.accept()
        await again.welcome(1, events[0].chain)
        gap, event = await again.take(2)
        assert gap == {"type": "gap", "from": 2, "to": 2, "chain": events[1].chain}
        assert event["seq"] == 3


async def test_a_requeued_dead_letter_comes_as_a_new_event(tmp_path: Path) -> None:
    """It takes its turn in the stream, and says what it repeats."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await first_contact(daemon, plane)
        await daemon.commit(2)
        _, poison = await wire.take(2)
        await wire.say(type="nack", seq=2, code="invalid", message="poison")
        await daemon.commit()
        assert (await wire.hear())["seq"] == 3
        await daemon.rig.local.requeue(2)
        again = await wire.hear()
        assert (again["seq"], again["kind"], again["terminal"]) == (4, poison["kind"], False)
        assert again["data"] == {**poison["data"], "requeue_of": 2}


async def test_a_busy_plane_is_sent_it_again(tmp_path: Path) -> None:
    """After the pause that the plane asked for, the same bytes come once more."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await first_contact(daemon, plane)
        (event,) = await daemon.commit()
        await wire.hear()
        await wire.say(type="nack", seq=1, code="busy", retry_after_ms=20)
        assert await wire.hear_raw() == event.body


# ------------------------------------------------------------ bad frames


MALFORMED: list[tuple[str | bytes, str]] = [
    ("{", "invalid_json"),
    ("", "invalid_json"),
    ('{"type":"ack","seq":1,"seq":1}', "duplicate_key"),
    ('{"type":"ack","seq":Infinity}', "not_finite"),
    ('{"type":"ack","seq":1e400}', "not_finite"),
    ('{"type":"ack","note":"\\ud800"}', "lone_surrogate"),
    ("[" * 100_000, "too_deep"),
    ('{"a":' * 65 + "1" + "}" * 65, "too_deep"),
    (f'{{"type":"ack","seq":{"9" * 5_000}}}', "integer_too_long"),
    ("null", "not_an_object"),
    ('{"type":"shrug"}', "unknown_type"),
    ('{"type":"event"}', "unknown_type"),
    ('{"type":"command","command_id":"né","run_id":"r","kind":"run.end"}', "invalid_command_id"),
    (b'{"type":"ack","seq":1}', "binary_frame"),
    ('{"type":"ack","seq":0}\x00', "invalid_json"),
]


async def test_malformed_frames_are_answered_and_harm_nothing(tmp_path: Path) -> None:
    """Each kind of garbage gets an `error` with its code, on a connection that goes on."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await first_contact(daemon, plane)
        for frame, code in MALFORMED:
            await wire.server.send(frame)
            answer = await wire.hear()
            assert (answer["type"], answer["code"]) == ("error", code)
            assert answer["message"]
        await daemon.commit()
        assert (await wire.hear())["seq"] == 1


async def test_a_frame_over_the_limit_closes_with_1009(tmp_path: Path) -> None:
    """An oversize frame ends the connection with 1009, and the daemon comes back."""

    def small(settings: LinkSettings) -> LinkSettings:
        return replace(settings, frame_bytes_max=2_000)

    async with serving() as plane, linked(tmp_path, plane.url, settings=small) as daemon:
        wire = await first_contact(daemon, plane)
        await wire.server.send("x" * 2_001)
        assert (await wire.closed())[0] == 1009
        again = await plane.accept()
        await again.welcome()
        await daemon.commit()
        assert (await again.hear())["seq"] == 1


async def test_text_that_is_no_utf8_closes_with_1007(tmp_path: Path) -> None:
    """RFC 6455, 8.1: such a connection has failed; the daemon comes back."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await first_contact(daemon, plane)
        await wire.server.send(b'{"type":"\xff"}', text=True)
        assert (await wire.closed())[0] == 1007
        await (await plane.accept()).welcome()


# ------------------------------------------------------------ handshakes that go wrong


async def test_a_rejection_is_noted_and_tried_again(tmp_path: Path) -> None:
    """`reject` is shown in the statistics, with the plane's reason."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await plane.accept()
        await wire.hear()
        await wire.say(type="reject", code="unsupported_protocol", message="speak 2")
        assert await wire.closed() == (1000, "rejected: unsupported_protocol")
        await eventually(lambda: "speak 2" in (daemon.link.statistics().last_error or ""))
        await plane.accept()


async def test_a_plane_that_never_welcomes_is_left(tmp_path: Path) -> None:
    """Without a welcome in time the socket is closed, and the next one tried."""
    async with serving() as plane, linked(tmp_path, plane.url, settings=dead_after(1.5)) as daemon:
        wire = await plane.accept()
        await wire.hear()
        assert await wire.closed() == (1002, "no welcome")
        assert not daemon.link.statistics().connected
        await plane.accept()


async def test_a_plane_that_selects_no_subprotocol_is_greeted_with_a_warning(tmp_path: Path) -> None:
    """The protocol does not ask for more than a welcome; the log says what is unusual."""
    with capture_logs() as logged:
        async with serving(subprotocol=None) as plane, linked(tmp_path, plane.url) as daemon:
            await first_contact(daemon, plane)
    assert "subprotocol_not_selected" in {entry["event"] for entry in logged}


async def test_a_server_that_is_no_plane_is_left_with_a_reason(tmp_path: Path) -> None:
    """Some other WebSocket server selects nothing, and does not welcome."""
    async with (
        serving(subprotocol=None) as plane,
        linked(tmp_path, plane.url, settings=dead_after(1.5)) as daemon,
    ):
        assert await (await plane.accept()).closed() == (1002, "no welcome")
        await eventually(lambda: "is control.url" in (daemon.link.statistics().last_error or ""))


async def test_a_server_that_selects_another_subprotocol_is_left_at_once(tmp_path: Path) -> None:
    """It has said that it speaks something else: not even `hello` is sent."""
    async with serving(subprotocol="chat.v1") as plane, linked(tmp_path, plane.url) as daemon:
        await eventually(lambda: "subprotocol" in (daemon.link.statistics().last_error or ""))
        assert not daemon.link.statistics().connected


# ------------------------------------------------------------ fences


async def test_a_takeover_fences_and_ends_the_connecting(tmp_path: Path) -> None:
    """After 4001 the daemon is fenced durably, and stays away until somebody unfences it."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await first_contact(daemon, plane)
        await wire.close(4001, "another boot")
        await eventually(lambda: daemon.link.statistics().state == "superseded")
        assert daemon.desk.fences == ["superseded"]
        await anyio.sleep(0.5)
        assert len(plane.requests) == 1
        await daemon.rig.journal.transact(lambda tx: tx.lift_fence())
        daemon.rig.posture.fence = None
        daemon.link.renew()
        hello = await (await plane.accept()).welcome()
        assert hello["state"] == "ready"


async def test_an_unfencing_before_the_takeover_does_not_end_the_wait_after_it(tmp_path: Path) -> None:
    """What was to be said anew was said with the hello: nobody has lifted the fence of this takeover."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        daemon.link.renew()
        assert not plane.requests, "while it connects"
        wire = await first_contact(daemon, plane)
        await wire.close(4001, "another boot")
        await eventually(lambda: daemon.desk.fences == ["superseded"])
        await anyio.sleep(0.5)
        assert daemon.link.statistics().state == "superseded"
        assert len(plane.requests) == 1


async def test_a_takeover_outlives_the_process(tmp_path: Path) -> None:
    """A daemon that finds such a fence in its journal does not connect either."""

    async def superseded(rig: Rig) -> None:
        await rig.desk.fence("superseded", "by another")

    async with serving() as plane, linked(tmp_path, plane.url, before=superseded) as daemon:
        await eventually(lambda: daemon.link.statistics().state == "superseded")
        await anyio.sleep(0.3)
        assert plane.requests == []


async def test_a_rollback_fences_and_stays_connected(tmp_path: Path) -> None:
    """Under any other fence the socket stays, nothing of the stream is sent, and commands get `fenced`."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await plane.accept()
        await wire.welcome(7, Chain("0" * 32))
        await eventually(lambda: daemon.desk.fences == ["rolled_back"])
        await daemon.commit()
        await wire.command("cmd-1")
        answer = await wire.hear()
        assert (answer["type"], answer["code"]) == ("refused", "fenced")
        assert await wire.is_silent_for(0.1)
        wire.cut()
        wire = await plane.accept()
        hello = await wire.welcome(7, Chain("0" * 32))
        assert hello["state"] == "fenced"
        await wire.command("cmd-1")
        assert (await wire.hear())["message"] == answer["message"], "the reason is known for good"
        assert "rolled_back" in answer["message"]


async def test_unfencing_says_hello_again(tmp_path: Path) -> None:
    """`renew` ends a connection that stands, so that the plane hears who this journal is now."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await first_contact(daemon, plane)
        daemon.link.renew()
        assert (await wire.closed())[0] == 1000
        await (await plane.accept()).welcome()


# ------------------------------------------------------------ the end


async def test_a_stopping_daemon_says_goodbye(tmp_path: Path) -> None:
    """Cancelled, the link closes its socket with 1001."""
    async with serving() as plane, anyio.create_task_group() as tasks:

        async def live(wire_closed: anyio.Event) -> None:
            async with linked(tmp_path, plane.url) as daemon:
                await first_contact(daemon, plane)
                daemon.stop()
            wire_closed.set()

        stopped = anyio.Event()
        tasks.start_soon(partial(live, stopped))
        await stopped.wait()
        assert await plane.wires[0].closed() == (1001, "the daemon stops")


async def test_boundaries_are_passed_in_order(tmp_path: Path) -> None:
    """The points between two durable steps are named, for whoever kills the process there."""
    passed: list[str] = []
    async with serving() as plane, linked(tmp_path, plane.url, boundary=passed.append) as daemon:
        wire = await first_contact(daemon, plane)
        await daemon.commit()
        await wire.hear()
        await wire.say(type="ack", seq=1)
        await eventually(lambda: "link.acknowledged" in passed)
        assert list(dict.fromkeys(passed)) == ["link.sent", "link.welcomed", "link.acknowledged"]
