"""The served sockets: permits, peers, refusals, and bounds on slow clients."""

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from structlog.testing import capture_logs
from uvicorn import Config, Server

from driver.local.connection import Connection
from driver.local.errors import SocketInUse
from driver.local.peers import credentials
from driver.local.server import serve_local
from driver.local.settings import LocalSettings
from store.writer import Writer
from tests.driver.local.world import World, opened, operation_id, served

pytestmark = pytest.mark.anyio

STOP_S_MAX = 20.0
"""Ten times what a stop takes at most, and far less than the time of those that it does not wait for."""
GET_STATUS = b"GET /v1/status HTTP/1.1\r\nhost: effectd\r\n\r\n"


@asynccontextmanager
async def raw(world: World, name: str = "inspect.sock") -> AsyncGenerator[SocketStream]:
    """A connection without HTTP."""
    async with await anyio.connect_unix(world.runtime_dir / name) as stream:
        yield stream


async def drained(stream: SocketStream) -> bytes:
    """Return all that comes until the other side closes."""
    found = b""
    with anyio.fail_after(30):
        try:
            while True:
                found += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return found


async def trickle(stream: SocketStream, piece: bytes) -> None:
    """Send `piece` again and again, until the other side has had enough."""
    with anyio.fail_after(30):
        while True:
            await stream.send(piece)
            await anyio.sleep(0.02)


@pytest.mark.parametrize(("name", "mode"), [("inspect.sock", 0o660), ("operator.sock", 0o600)])
async def test_each_socket_has_its_mode(tmp_path: Path, name: str, mode: int) -> None:
    """Reads are open to the group, all else to the owner alone."""
    async with served(tmp_path) as world:
        assert stat.S_IMODE((world.runtime_dir / name).stat().st_mode) == mode


async def test_the_sockets_go_with_the_service(tmp_path: Path) -> None:
    """A stopped daemon leaves no file that looks alive."""
    async with served(tmp_path) as world:
        pass
    assert not list(world.runtime_dir.glob("*.sock"))


async def test_a_second_service_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    """A live socket is never taken over, and the first goes on."""
    async with served(tmp_path / "a") as first:
        async with opened(tmp_path / "b") as second:
            with pytest.raises(SocketInUse):
                await serve_local(second, LocalSettings(runtime_dir=first.runtime_dir))
        assert (await first.get("/v1/status")).status_code == 200


async def test_a_restart_takes_over_what_a_kill_left_behind(tmp_path: Path) -> None:
    """Stale sockets are replaced."""
    (tmp_path / "run").mkdir(mode=0o750)
    for name in ("inspect.sock", "operator.sock"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
            dead.bind(os.fspath(tmp_path / "run" / name))
    async with served(tmp_path) as world:
        assert (await world.get("/v1/status")).status_code == 200


async def test_a_write_on_the_inspect_socket_is_forbidden(tmp_path: Path) -> None:
    """The group reads, and only reads."""
    async with served(tmp_path) as world, world.client() as client:
        answer = await client.post("/v1/verify")
    assert answer.status_code == 403
    assert answer.json()["code"] == "read_only_socket"


@pytest.mark.parametrize("header", ["Origin", "Referer"])
async def test_a_request_of_a_web_page_is_refused(tmp_path: Path, header: str) -> None:
    """A browser that was led to the socket gets nothing, not even a read."""
    async with served(tmp_path) as world, world.client("operator.sock") as client:
        answer = await client.get("/v1/status", headers={header: "http://evil.example"})
    assert answer.status_code == 403
    assert answer.json()["code"] == "browser_request"


REFUSALS = [
    ("GET", "/v1/nothing", 404, "no_such_path"),
    ("GET", "/v1/status/", 404, "no_such_path"),
    ("GET", "/v1/operations/op_none", 404, "operation_not_found"),
    ("GET", "/v1/operations/%F0%9F%92%A3%00", 404, "operation_not_found"),
    ("GET", "/v1/commands/none", 404, "command_not_found"),
    ("GET", "/v1/runs/none", 404, "run_not_found"),
    ("GET", "/v1/operations/op_none%2Fretry", 404, "operation_not_found"),
    ("POST", "/v1/operations/op_none%2fretry", 405, "method_not_allowed"),
    ("DELETE", "/v1/status", 405, "method_not_allowed"),
    ("POST", "/v1/operations", 405, "method_not_allowed"),
    ("GET", "/v1/operations?limit=501", 422, "invalid_query"),
]


async def test_every_refusal_is_a_problem_with_a_stable_code(tmp_path: Path) -> None:
    """RFC 9457, whoever refuses."""
    async with served(tmp_path) as world, world.client("operator.sock") as client:
        for method, path, status, code in REFUSALS:
            answer = await client.request(method, path)
            problem = answer.json()
            assert answer.status_code == status, path
            assert answer.headers["content-type"] == "application/problem+json"
            assert (problem["status"], problem["code"], problem["type"]) == (status, code, "about:blank")
            assert problem["title"]
            assert problem["detail"]
            assert status != 405 or "GET" in answer.headers["allow"]


async def test_a_bug_of_ours_is_a_problem_without_a_traceback(tmp_path: Path) -> None:
    """Neither the caller nor the log sees an exception's text, which may quote arguments."""
    async with served(tmp_path) as world:
        world.facts = replace(world.facts, fault_injection=("secret", object()))  # type: ignore[arg-type]
        with capture_logs() as logs:
            answer = await world.get("/v1/status")
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal"
    assert "Traceback" not in answer.text
    assert [entry["error"] for entry in logs if entry["event"] == "local_request_failed"] == ["TypeError"]
    assert "secret" not in str(logs)


async def test_a_stopped_journal_is_a_problem(tmp_path: Path) -> None:
    """The API says that the daemon is about to exit, instead of an internal error."""
    async with served(tmp_path) as world:
        world.journal.close()
        answer = await world.get("/v1/status")
    assert answer.status_code == 503
    assert answer.json()["code"] == "journal_stopped"


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/1.1\r\nx" + b"y" * 20_000]
)
async def test_what_is_no_http_is_a_problem(tmp_path: Path, garbage: bytes) -> None:
    """Bytes of another protocol, and heads without an end."""
    async with served(tmp_path) as world, raw(world) as stream:
        await stream.send(garbage)
        head, _, body = (await drained(stream)).partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
    assert json.loads(body)["code"] == "invalid_request"


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://x/v1/status", 200),
        (b"HTTP://effectd:80/v1/operations?limit=1", 200),
        (b"https://x/v1/operations?limit=0", 422),
        (b"http://x", 404),
        (b"http://x/v1/nothing", 404),
        (b"ftp://x/v1/status", 404),
        (b"*", 404),
    ],
)
async def test_a_whole_url_is_taken_for_its_path(tmp_path: Path, target: bytes, status: int) -> None:
    """As RFC 9112 asks of each server: some clients send what they send to proxies."""
    async with served(tmp_path) as world, raw(world) as stream:
        await stream.send(b"GET " + target + b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        found = await drained(stream)
    assert found.startswith(b"HTTP/1.1 %d " % status)


async def test_the_peer_is_who_the_kernel_says() -> None:
    """The uid of whoever connected, which no request can forge."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        peer = credentials(ours)
    assert (peer.pid, peer.uid) == (os.getpid(), os.geteuid())
    assert peer.actor == f"operator:{os.geteuid()}"


SLOW_CLIENTS = 200
READS = 20
READ_S_MAX = 0.1
"""What a read takes at most beside as many slow clients, at its best: usually a twentieth of this."""
SLOWER_MAX = 10.0
SLACK_S = 0.1
"""How many times as long the usual read may take beside them, and what else the machine may add."""
TICKS = 4
"""More than an idle service sets timers, and less than half of what uvicorn's clock sets in a second."""
HALF_A_HEAD = b"GET /v1/status HTTP/1.1\r\nx: "


async def read_s(world: World) -> list[float]:
    """Return how long reads of the status take, each on a connection of its own, one after the other."""
    taken: list[float] = []
    for _ in range(READS):
        async with raw(world) as stream:
            began = time.perf_counter()
            await stream.send(GET_STATUS)
            with anyio.fail_after(60):
                assert (await stream.receive()).startswith(b"HTTP/1.1 200")
            taken.append(time.perf_counter() - began)
    return taken


async def slow_clients(world: World, clients: AsyncExitStack, says: bytes) -> None:
    """Connect as many clients that say this, and no more."""
    for _ in range(SLOW_CLIENTS):
        stream = await clients.enter_async_context(raw(world))
        if says:
            await stream.send(says)


@pytest.mark.parametrize("says", [b"", HALF_A_HEAD], ids=["idle", "half a request"])
async def test_200_slow_clients_do_not_delay_a_read(
    tmp_path: Path, says: bytes, measure: Callable[[str], None]
) -> None:
    """Clients that say nothing, or half of what they want, cost a file descriptor each, and no time."""
    async with served(tmp_path, request_s=600.0) as world, AsyncExitStack() as clients:
        alone = await read_s(world)
        await slow_clients(world, clients, says)
        beside = await read_s(world)
    measure(
        f"a read of the status beside {SLOW_CLIENTS} clients that sent {len(says)} bytes: "
        f"{median(beside) * 1e3:.1f} ms, and {median(alone) * 1e3:.1f} without them"
    )
    assert min(beside) < READ_S_MAX
    assert median(beside) < SLOWER_MAX * median(alone) + SLACK_S


async def test_where_slow_clients_are_served_one_by_one_a_read_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: a server that gives each that is waiting its turn is measured as too slow."""
    plain = Connection.data_received

    def after_all_others(connection: Connection, data: bytes) -> None:
        waiting = sum(1 for other in connection.connections if other is not connection)
        connection.loop.call_later(waiting * READ_S_MAX / 100, plain, connection, data)

    async with served(tmp_path, request_s=600.0) as world, AsyncExitStack() as clients:
        await slow_clients(world, clients, b"")
        monkeypatch.setattr(Connection, "data_received", after_all_others)
        assert min(await read_s(world)) > READ_S_MAX


async def test_400_slow_clients_lock_nobody_out(tmp_path: Path) -> None:
    """There are more of them than connections: whoever has waited longest makes room."""
    async with served(tmp_path, request_s=600.0) as world, AsyncExitStack() as clients:
        for _ in range(2):
            await slow_clients(world, clients, HALF_A_HEAD)
        assert (await world.get("/v1/status")).status_code == 200


async def test_where_nobody_makes_room_slow_clients_lock_everybody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the bound alone turns the next client away."""

    def no_room(_connection: Connection) -> bool:
        return False

    monkeypatch.setattr(Connection, "_make_room", no_room)
    async with served(tmp_path, request_s=600.0) as world, AsyncExitStack() as clients:
        for _ in range(2):
            await slow_clients(world, clients, b"")
        answer = await world.get("/v1/status")
    assert (answer.status_code, answer.json()["code"]) == (503, "busy")


async def test_a_new_connection_takes_the_place_of_the_longest_idle(tmp_path: Path) -> None:
    """Whoever holds all connections without using them locks nobody out."""
    async with served(tmp_path, connections_max=3) as world, AsyncExitStack() as idle:
        oldest, *others = [await idle.enter_async_context(raw(world)) for _ in range(3)]
        assert (await world.get("/v1/status")).status_code == 200
        assert await drained(oldest) == b""
        for other in others:
            await other.send(GET_STATUS)
            assert (await other.receive()).startswith(b"HTTP/1.1 200")


async def test_where_all_connections_are_busy_a_new_one_is_told_so(tmp_path: Path) -> None:
    """It gets a problem at once, not a wait without end."""
    async with served(tmp_path, connections_max=2) as world, AsyncExitStack() as busy:
        for _ in range(2):
            stream = await busy.enter_async_context(raw(world))
            await stream.send(b"GET /v1/events?follow=true HTTP/1.1\r\nhost: x\r\n\r\n")
            await stream.receive()
        async with raw(world) as late:
            assert b'"code": "busy"' in await drained(late)


async def test_a_head_sent_byte_by_byte_runs_out_of_time(tmp_path: Path) -> None:
    """A byte now and then does not keep a connection."""
    async with served(tmp_path, request_s=0.3) as world, raw(world) as stream:
        with pytest.raises(anyio.BrokenResourceError):
            await trickle(stream, b"x")


async def test_without_our_timer_a_head_sent_byte_by_byte_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: uvicorn's own timer starts again with each byte."""
    monkeypatch.setattr(Connection, "_await_request", Connection._stop_waiting)
    async with served(tmp_path, request_s=0.3) as world, raw(world) as stream:
        with anyio.move_on_after(1.5) as lasted:
            await trickle(stream, b"x")
        assert lasted.cancelled_caught


async def test_a_body_without_end_after_the_answer_runs_out_of_time(tmp_path: Path) -> None:
    """The next request's head must come in time, whatever else comes."""
    async with served(tmp_path, request_s=0.3) as world, raw(world) as stream:
        await stream.send(b"GET /v1/status HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n")
        with pytest.raises(anyio.BrokenResourceError):
            await trickle(stream, b"x" * 100)


async def test_a_connection_serves_many_requests(tmp_path: Path) -> None:
    """Keep-alive, and pipelining: answers come in the order of requests."""
    async with served(tmp_path, request_s=5.0) as world, raw(world) as stream:
        for _ in range(2):
            await stream.send(GET_STATUS + b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            found = b""
            with anyio.fail_after(30):
                while b'"healthy"' not in found:
                    found += await stream.receive()
            assert found.count(b"HTTP/1.1 200") == 2
            assert found.index(b"driver_id") < found.index(b"healthy")


async def test_a_client_that_never_reads_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stream ends after `stall_s`; nobody else waits for it."""
    lost = anyio.Event()
    plain = Connection.connection_lost

    def noted(connection: Connection, exc: Exception | None) -> None:
        plain(connection, exc)
        lost.set()

    async with served(tmp_path, stall_s=0.3) as world:
        await world.chatter(3_000)
        async with raw(world) as stream:
            monkeypatch.setattr(Connection, "connection_lost", noted)
            await stream.send(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n")
            with anyio.fail_after(30):
                await lost.wait()
            found = await drained(stream)
        assert b"\r\n0\r\n\r\n" not in found
        assert (await world.get("/v1/status")).status_code == 200


async def test_a_stop_ends_streams_and_does_not_wait_for_idle_clients(tmp_path: Path) -> None:
    """The daemon's end is bounded, whatever its clients do."""
    async with AsyncExitStack() as clients:
        async with served(tmp_path, request_s=600.0) as world:
            idle = await clients.enter_async_context(raw(world))
            half = await clients.enter_async_context(raw(world))
            await half.send(b"GET /v1")
            follower = await clients.enter_async_context(raw(world))
            await follower.send(b"GET /v1/events?follow=true HTTP/1.1\r\nhost: x\r\n\r\n")
            head = await follower.receive()
            began = time.perf_counter()
        assert time.perf_counter() - began < STOP_S_MAX
        assert (head + await drained(follower)).endswith(b"\r\n0\r\n\r\n")
        assert await drained(idle) == await drained(half) == b""


async def test_a_stop_cuts_off_who_does_not_read(tmp_path: Path) -> None:
    """A full socket buffer does not hold the daemon longer than `drain_s`."""
    async with AsyncExitStack() as clients:
        async with served(tmp_path, drain_s=1, stall_s=600.0) as world:
            await world.chatter(5_000)
            stream = await clients.enter_async_context(raw(world))
            await stream.send(b"GET /v1/events?follow=true HTTP/1.1\r\nhost: x\r\n\r\n")
            await anyio.sleep(0.1)
            began = time.perf_counter()
        assert time.perf_counter() - began < STOP_S_MAX


async def timers_within(seconds: float) -> int:
    """Return how many timers are set within a time in which nobody wants anything."""
    loop = asyncio.get_running_loop()
    plain = loop.call_at
    timers = 0

    def counted(when: float, callback: Callable[..., object], *arguments: Any, **more: Any) -> Any:  # noqa: ANN401 - as asyncio's own
        nonlocal timers
        timers += 1
        return plain(when, callback, *arguments, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "call_at", counted)
        await anyio.sleep(seconds)
    return timers - 1


async def test_an_idle_service_sleeps(tmp_path: Path) -> None:
    """No timer of the HTTP server wakes the daemon when nobody asks."""
    async with served(tmp_path) as world:
        await world.get("/v1/status")
        await anyio.sleep(1)  # until the journal is idle, too
        assert await timers_within(1) < TICKS


async def test_a_server_with_a_clock_does_not_sleep() -> None:
    """Negative control: uvicorn's own loop would be noticed."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Server(Config("nobody:calls")).main_loop)
        assert await timers_within(2) > TICKS
        tasks.cancel_scope.cancel()


async def test_health_and_readiness_follow_the_daemon(tmp_path: Path) -> None:
    """Healthy: the journal commits. Ready: new calls are taken."""
    async with served(tmp_path) as world:
        assert (await world.get("/healthz")).json() == {"healthy": True}
        assert (await world.get("/readyz")).json() == {"ready": True, "state": "ready"}
        world.ill = "no commit for 31 s"
        world.facts = replace(world.facts, state="draining")
        ill, unready = await world.get("/healthz"), await world.get("/readyz")
    assert (ill.status_code, ill.json()["code"], ill.json()["detail"]) == (
        503,
        "unhealthy",
        "no commit for 31 s",
    )
    assert (unready.status_code, unready.json()["code"]) == (503, "not_ready")


async def test_a_full_journal_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It commits, so it is healthy; and it takes no new call."""

    def has_room(_: Writer) -> bool:
        return False

    async with served(tmp_path) as world:
        monkeypatch.setattr(Writer, "_has_room", has_room)
        healthy, unready = await world.get("/healthz"), await world.get("/readyz")
    assert healthy.status_code == 200
    assert (unready.status_code, unready.json()["code"]) == (503, "not_ready")
    assert "no_room" in unready.json()["detail"]


async def test_signals_stay_the_daemons(tmp_path: Path) -> None:
    """The HTTP server installs no handlers."""
    code = (
        "import signal,sys; from pathlib import Path; import anyio\n"
        "from tests.driver.local.world import served\n"
        "async def main():\n"
        "    async with served(Path(sys.argv[1])):\n"
        "        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL\n"
        "        assert signal.getsignal(signal.SIGINT) is before\n"
        "before = signal.getsignal(signal.SIGINT)\n"
        "async def outer():\n"
        "    global before\n"
        "    before = signal.getsignal(signal.SIGINT)\n"
        "    await main()\n"
        "anyio.run(outer)\n"
    )
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=False)
    )
    assert done.returncode == 0, done.stderr.decode()


async def test_a_head_request_has_no_body(tmp_path: Path) -> None:
    """Not even that of a stream that would never end."""
    async with served(tmp_path) as world, world.client() as client:
        for path in (
            "/v1/status",
            "/v1/events",
            "/v1/events?follow=true",
            f"/v1/operations/{operation_id('x')}",
        ):
            with anyio.fail_after(30):
                answer = await client.head(path)
            assert answer.content == b""
