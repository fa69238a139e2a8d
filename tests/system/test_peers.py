"""Servers that others wrote, behind the real daemon: what they answer is in the journal as they said it.

Each is called to read, to write where it can, to fail, with wrong arguments and for a tool that it does not
have. Something that listens between the daemon and the server keeps what was really said.
"""

import json
import os
import socket
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from tests.peers import between, from_npm, from_pypi
from tests.system.history import Json
from tests.system.plane import PATIENCE_S, ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Sandbox, sandbox
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.lane]

HURRIED_S: Final = 2.0
"""The deadline of a call that is not answered in time, on purpose; the others are quick."""
POSTED: Final = b"Received MCP POST request"
"""What the example server says of each message that comes over HTTP."""
OLDER: Final = "2025-11-25"
NEWER: Final = "2026-07-28"
SDK_HTTP: Final = Path(__file__).parents[1] / "servers" / "sdk_http.py"


@dataclass(slots=True, kw_only=True)
class Talk:
    """A daemon that has one such server as its provider `peer`, and a plane that gives it calls."""

    made: Sandbox
    plane: ScriptedPlane
    record: Path
    given: int = 0
    receipts: list[Json] = field(default_factory=list[Json])

    async def ask(self, tool: str, **arguments: object) -> Json:
        """Call a tool; return the receipt."""
        self.given += 1
        name = f"cmd-{self.given}"
        await self.plane.give(call(name, f"peer/{tool}", run_id=f"run-{self.given}", **arguments))
        receipt = await self.plane.receipt_of(name)
        self.receipts.append(receipt)
        return receipt

    async def fails_early(self, tool: str, **wrong: object) -> None:
        """Wrong arguments, and a tool that is not there: the server never hears of either."""
        said = len(self.said())
        for name, reason in ((tool, "invalid_arguments"), ("no-such-tool", "unknown_tool")):
            receipt = await self.ask(name, **wrong)
            assert (receipt["kind"], receipt["data"]["reason"]) == ("operation.not_executed", reason)
        # a second look at the tool list is all that it may have been asked for
        assert all("tools" in line["result"] for line in self.said()[said:])

    def said(self) -> list[Json]:
        """Return every response of the server, in order; none where nobody listens between."""
        if not self.record.exists():
            return []
        lines = (json.loads(line) for line in self.record.read_text().splitlines())
        return [line for line in lines if "id" in line and "method" not in line]

    def era(self) -> str:
        """Return the version of the protocol that the server agreed to."""
        versions = [line["result"].get("protocolVersion") for line in self.said() if "result" in line]
        return next((str(version) for version in versions if version), NEWER)


@asynccontextmanager
async def talk(zygote: Zygote, provider: Json, **tools: Json) -> AsyncGenerator[Talk]:
    """Start a daemon with this provider; `tools` are contracts. At the end all receipts must hold."""
    tables: dict[str, Json] = {"providers__peer": {"kind": "mcp", **provider}}
    tables["providers__peer__env"] = tables["providers__peer"].pop("env", {})
    tables |= {f"providers__peer__tools__{name}": keys for name, keys in tools.items()}
    async with scripted_plane() as plane, sandbox(zygote, plane, **tables) as made:
        life = made.start()
        talking = Talk(made=made, plane=plane, record=made.root / "record")
        yield talking
        await plane.redeliver(*plane.orders)
        if talking.said():
            results = [line.get("result") for line in talking.said()]
            for receipt in talking.receipts:
                assert receipt["data"].get("result") in (None, *results), "not what the server said"
        assert await life.stop() == 0, life.text[-4000:]


def over_stdio(*command: str, options: tuple[str, ...] = (), **env: str) -> dict[str, Any]:
    """Return a provider's table. The record is a file beside the daemon's folder for work."""
    return {"argv": [*between("--record", "../../record", *options), *command], "env": env}


def text(receipt: Json) -> str:
    """Return the first text of a result."""
    found: str = receipt["data"]["result"]["content"][0]["text"]
    return found


def failed(receipt: Json) -> bool:
    """Whether the server answered that it went wrong, and nobody claims to know what came of it."""
    data = receipt["data"]
    kind = (receipt["kind"], data["effect"], data["error"]["code"]) if "error" in data else None
    return kind == ("operation.failed", "unknown", "tool_error")


eras = pytest.mark.parametrize(
    ("options", "era"), [((), NEWER), (("--older",), OLDER)], ids=["discover", "initialize"]
)


# ------------------------------------------------------------------ from PyPI


@eras
async def test_time(zygote: Zygote, options: tuple[str, ...], era: str) -> None:
    """It only reads: what it answers is kept with its structured content and its metadata."""
    read = {"effect": "read"}
    peer = over_stdio(from_pypi("mcp-server-time"), options=options)
    async with talk(zygote, peer, get_current_time=read) as talking:
        now = await talking.ask("get_current_time", timezone="UTC")
        assert now["kind"] == "operation.succeeded"
        assert now["data"]["result"]["structuredContent"]["timezone"] == "UTC"
        assert ("_meta" in now["data"]["result"]) == (era == NEWER)
        assert failed(await talking.ask("get_current_time", timezone="Nowhere/Land"))
        await talking.fails_early("get_current_time", timezone=["UTC"])
        assert talking.era() == era


@eras
async def test_git(zygote: Zygote, options: tuple[str, ...], era: str) -> None:
    """One command, one commit, however often it is delivered."""
    async with talk(zygote, over_stdio(from_pypi("mcp-server-git"), options=options)) as talking:
        repository = talking.made.root / "repository"
        await anyio.to_thread.run_sync(make_repository, repository)
        path = str(repository)
        assert "file" in text(await talking.ask("git_status", repo_path=path))
        assert (await talking.ask("git_add", repo_path=path, files=["file"]))["kind"] == "operation.succeeded"
        receipt = await talking.ask("git_commit", repo_path=path, message="once")
        assert (receipt["kind"], receipt["data"]["effect"]) == ("operation.succeeded", "occurred")
        assert failed(await talking.ask("git_commit", repo_path=path + "-not", message="never"))
        await talking.fails_early("git_commit", repo_path=path)
        assert talking.era() == era
        await talking.plane.redeliver(*talking.plane.orders)
        log = await anyio.to_thread.run_sync(git, repository, "log", "--format=%s")
        assert log == "once\n"


@eras
async def test_fetch(zygote: Zygote, options: tuple[str, ...], era: str) -> None:
    """A page of the test's own is fetched; one that is not there is the server's failure."""
    peer = over_stdio(from_pypi("mcp-server-fetch"), "--allow-private-ips", options=options)
    async with site() as url, talk(zygote, peer, fetch={"effect": "read"}) as talking:
        page = await talking.ask("fetch", url=f"{url}/page")
        assert page["kind"] == "operation.succeeded"
        assert "the words of the page" in text(page)
        assert failed(await talking.ask("fetch", url=f"{url}/nothing"))
        await talking.fails_early("fetch", url=f"{url}/page", max_length="many")
        assert talking.era() == era


# ------------------------------------------------------------------ from npm


async def test_filesystem(zygote: Zygote) -> None:
    """A file is written once and read back; an answer too large for an event is whole in the journal."""
    peer = over_stdio(from_npm("mcp-server-filesystem"), ".")
    async with talk(zygote, peer, read_text_file={"effect": "read"}) as talking:
        folder = talking.made.state / "work"
        file = folder / "note"
        receipt = await talking.ask("write_file", path=str(file), content="žluťoučký kůň\n\U0001f40e")
        assert receipt["kind"] == "operation.succeeded"
        assert file.read_text() == "žluťoučký kůň\n\U0001f40e"
        assert text(await talking.ask("read_text_file", path=str(file))) == file.read_text()
        assert failed(await talking.ask("read_text_file", path="/etc/hostname"))
        assert failed(await talking.ask("move_file", source=str(file), destination=str(file)))
        await talking.fails_early("write_file", path=str(file))

        (folder / "large").write_text("0123456789abcde\n" * 90_000)
        large = await talking.ask("read_text_file", path=str(folder / "large"))
        assert (large["data"]["result"], large["data"]["result_truncated"]) == (None, True)
        whole = await talking.made.operation(large["operation_id"])
        assert whole["result"] in [line.get("result") for line in talking.said()]
        assert talking.era() == OLDER


async def test_memory(zygote: Zygote, tmp_path: Path) -> None:
    """What is remembered once is there once."""
    peer = over_stdio(from_npm("mcp-server-memory"), MEMORY_FILE_PATH=f"{tmp_path}/memory")
    async with talk(zygote, peer, read_graph={"effect": "read"}) as talking:
        entity = {"name": "effectd", "entityType": "daemon", "observations": ["it counts"]}
        assert (await talking.ask("create_entities", entities=[entity]))["kind"] == "operation.succeeded"
        graph = await talking.ask("read_graph")
        assert graph["data"]["result"]["structuredContent"] == {"entities": [entity], "relations": []}
        more = {"entityName": "nobody", "contents": ["?"]}
        assert failed(await talking.ask("add_observations", observations=[more]))
        await talking.fails_early("create_entities", entities="effectd")
        await talking.plane.redeliver(*talking.plane.orders)
        assert (tmp_path / "memory").read_text().count('"effectd"') == 1


async def test_everything_that_content_can_be(zygote: Zygote) -> None:
    """Annotations, images, links, embedded resources and structured content are kept as they came."""
    peer = over_stdio(from_npm("mcp-server-everything"), options=("--progress",))
    async with talk(zygote, peer) as talking:
        assert text(await talking.ask("echo", message="hi")) == "Echo: hi"
        annotated = await talking.ask("get-annotated-message", messageType="error", includeImage=True)
        words, image = annotated["data"]["result"]["content"]
        assert words["annotations"] == {"priority": 1, "audience": ["user", "assistant"]}
        assert (image["type"], image["mimeType"]) == ("image", "image/png")
        links = await talking.ask("get-resource-links", count=10)
        kinds = [block["type"] for block in links["data"]["result"]["content"]]
        assert kinds == ["text", *["resource_link"] * 10]
        blob = await talking.ask("get-resource-reference", resourceType="Blob", resourceId=2)
        assert "blob" in blob["data"]["result"]["content"][1]["resource"]
        weather = await talking.ask("get-structured-content", location="Chicago")
        assert "temperature" in weather["data"]["result"]["structuredContent"]
        assert weather["data"].get("output_invalid") in (None, False)
        assert failed(await talking.ask("get-resource-reference", resourceType="Blob", resourceId=-2))
        await talking.fails_early("get-sum", a="one", b=2)


async def test_everything_takes_long_and_tells_of_its_progress(zygote: Zygote) -> None:
    """Progress disturbs nothing; a deadline is `unknown`, and the answer that comes later settles it."""
    peer = over_stdio(from_npm("mcp-server-everything"), options=("--progress",))
    hurried = {"execution_s": HURRIED_S}
    async with talk(zygote, peer, **{"trigger-long-running-operation": hurried}) as talking:
        quick = await talking.ask("trigger-long-running-operation", duration=0.2, steps=4)
        assert quick["kind"] == "operation.succeeded"
        assert talking.record.read_text().count("notifications/progress") == 4
        slow = await talking.ask("trigger-long-running-operation", duration=2 * HURRIED_S, steps=5)
        assert (slow["kind"], slow["data"]["reason"]) == ("operation.unknown", "execution_timeout")
        assert text(await talking.ask("echo", message="meanwhile")) == "Echo: meanwhile"
        late = await late_result(talking, slow)
        assert late["data"]["effect"] == "occurred"
        assert text(late).startswith("Long running operation completed")


async def test_everything_asks_for_what_nobody_here_can_give(zygote: Zygote) -> None:
    """A server that samples, elicits and wants roots gets refusals, at once: its tools say so."""
    claims: Json = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}}
    peer = over_stdio(from_npm("mcp-server-everything"), options=("--claims", json.dumps(claims)))
    async with talk(zygote, peer) as talking:
        with anyio.fail_after(PATIENCE_S):
            for tool, arguments in (
                ("trigger-sampling-request", {"prompt": "?"}),
                ("trigger-elicitation-request", {}),
                ("trigger-url-elicitation", {"url": "https://example.invalid/"}),
            ):
                receipt = await talking.ask(tool, **arguments)
                assert failed(receipt)
                assert "not supported" in text(receipt)
            assert (await talking.ask("get-roots-list"))["kind"] == "operation.succeeded"
        asked = {json.loads(line).get("method") for line in talking.record.read_text().splitlines()}
        assert asked >= {"sampling/createMessage", "elicitation/create", "roots/list"}


# ------------------------------------------------------------------ over HTTP


async def test_everything_over_http(zygote: Zygote) -> None:
    """Sessions and streams of the older era: answers, failures, a deadline, and the answer after it."""
    command = [from_npm("mcp-server-everything"), "streamableHttp"]
    port = free_port()
    hurried = {"execution_s": HURRIED_S}
    async with listening(command, b"listening on port", PORT=str(port)):
        peer = {"url": f"http://127.0.0.1:{port}/mcp"}
        async with talk(zygote, peer, **{"trigger-long-running-operation": hurried}) as talking:
            assert text(await talking.ask("echo", message="hi")) == "Echo: hi"
            assert failed(await talking.ask("get-resource-reference", resourceType="Blob", resourceId=-2))
            await talking.fails_early("get-sum", a="one", b=2)
            slow = await talking.ask("trigger-long-running-operation", duration=2 * HURRIED_S, steps=5)
            assert (slow["kind"], slow["data"]["reason"]) == ("operation.unknown", "execution_timeout")
            assert (await late_result(talking, slow))["data"]["effect"] == "occurred"


async def test_everything_over_http_is_killed_and_comes_back(zygote: Zygote) -> None:
    """The call under way is unknown; the next server knows nothing of our session, and gets a new one."""
    command = [from_npm("mcp-server-everything"), "streamableHttp"]
    port = free_port()
    async with talk(zygote, {"url": f"http://127.0.0.1:{port}/mcp"}) as talking:
        async with listening(command, b"listening on port", PORT=str(port)) as heard:
            assert text(await talking.ask("echo", message="hi")) == "Echo: hi"
            slow = call("slow", "peer/trigger-long-running-operation", duration=60, steps=1)
            requests = heard.count(POSTED)
            await talking.plane.give(slow)
            # killed before it has the call, `connect_failed` and `not_executed` would be the truth
            await heard.until(lambda: heard.count(POSTED) > requests)
        lost = await talking.plane.receipt_of("slow")
        assert (lost["kind"], lost["data"]["reason"]) == ("operation.unknown", "connection_lost")
        down = await talking.ask("echo", message="anybody there?")
        assert (down["kind"], down["data"]["reason"]) == ("operation.not_executed", "connect_failed")
        async with listening(command, b"listening on port", PORT=str(port)):
            assert text(await talking.ask("echo", message="again")) == "Echo: again"
        async with listening(command, b"listening on port", PORT=str(port)):
            # nothing was under way when it was killed: the first call finds out, and is not sent again
            forgotten = await talking.ask("echo", message="once more")
            assert forgotten["kind"] == "operation.failed"
            assert text(await talking.ask("echo", message="and again")) == "Echo: and again"


async def test_the_sdk_over_http(zygote: Zygote) -> None:
    """The newer era over HTTP: one effect for each command, redelivered or not."""
    port = free_port()
    async with talk(zygote, {"url": f"http://127.0.0.1:{port}/mcp"}) as talking:
        ledger = talking.made.root / "sdk-ledger"
        command = [from_pypi("python"), str(SDK_HTTP), str(port), str(ledger)]
        async with listening(command, b"Uvicorn running"):
            for n in range(3):
                receipt = await talking.ask("count", n=n)
                assert receipt["data"]["result"]["structuredContent"] == {"result": n + 1}
                assert receipt["data"]["result"]["resultType"] == "complete"
            await talking.fails_early("count", n="one")
            await talking.plane.redeliver(*talking.plane.orders)
        assert ledger.read_text() == "0\n1\n2\n"


# ------------------------------------------------------------------ what the tests share


async def late_result(talking: Talk, receipt: Json) -> Json:
    """Return the event of the answer that came after this receipt, once it is there."""

    def found() -> list[Json]:
        events = talking.plane.history.events()
        return [
            event
            for event in events
            if event["kind"] == "operation.late_result" and event["operation_id"] == receipt["operation_id"]
        ]

    await talking.plane.until(found)
    return found()[0]


def make_repository(path: Path) -> None:
    """Make a repository with a file that is not committed."""
    path.mkdir()
    git(path, "init", "--quiet")
    git(path, "config", "user.email", "test@example.invalid")
    git(path, "config", "user.name", "test")
    (path / "file").write_text("content")


def git(path: Path, *arguments: str) -> str:
    """Run git in a repository."""
    return subprocess.run(
        ["git", "-C", str(path), *arguments], check=True, capture_output=True, text=True
    ).stdout


@asynccontextmanager
async def site() -> AsyncGenerator[str]:
    """Serve one page of plain text on the loopback interface."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                head += await stream.receive()
            found = head.startswith(b"GET /page ")
            body = b"the words of the page" if found else b"nothing"
            status = b"200 OK" if found else b"404 Not Found"
            headers = f"content-type: text/plain\r\ncontent-length: {len(body)}\r\nconnection: close"
            await stream.send(b"HTTP/1.1 " + status + b"\r\n" + headers.encode() + b"\r\n\r\n" + body)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class Heard:
    """What a server has said on its standard output."""

    stream: anyio.abc.ByteReceiveStream
    said: bytes = b""
    more: anyio.Event = field(default_factory=anyio.Event)

    async def listen(self) -> None:
        """Take it in, until the server ends."""
        async for piece in self.stream:
            self.said += piece
            self.more.set()
            self.more = anyio.Event()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Return once this is so: it is asked after everything that the server says."""
        with anyio.fail_after(PATIENCE_S):
            while not reached():
                await self.more.wait()

    def count(self, words: bytes) -> int:
        """Return how often it has said this."""
        return self.said.count(words)


@asynccontextmanager
async def listening(command: list[str], sign: bytes, **env: str) -> AsyncGenerator[Heard]:
    """Run a server until the end of the block, which begins when the server has said `sign`."""
    process = await anyio.open_process(command, stderr=subprocess.STDOUT, env={**os.environ, **env})
    async with process, anyio.create_task_group() as tasks:
        assert process.stdout is not None
        try:
            heard = Heard(process.stdout)
            tasks.start_soon(heard.listen)
            await heard.until(lambda: heard.count(sign) > 0)
            yield heard
        finally:
            process.kill()
            tasks.cancel_scope.cancel()
