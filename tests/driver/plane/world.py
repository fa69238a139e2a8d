"""What the plane's tests share: a real plane on a real port, and a driver that is scripted frame by frame.

The driver keeps a journal as the daemon does (rendered and chained by `store`), speaks through the
`websockets` client, and holds every frame that it gets against the JSON Schema of the protocol.
"""
# ruff: noqa: ANN401 - JSON of the HTTP API, and frames on purpose wrong, have no type

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import anyio
import httpx2
from jsonschema import Draft202012Validator
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from driver.core.codec import render as render_frame
from driver.core.frames import SUBPROTOCOL, Frame, Hello
from driver.core.schema import schema
from driver.plane.server import PlaneSettings, serve_plane
from store.chain import digest, extend, origin, seal
from store.declared import EventData
from store.events import (
    CommandAccepted,
    DriverStarted,
    OperationStarted,
    OperationSucceeded,
    OperationUnknown,
)
from store.records import (
    BootId,
    Chain,
    CommandId,
    Digest,
    JournalId,
    OperationId,
    Origin,
    RunId,
    Timestamp,
)
from store.wire import render

PATIENCE_S: Final = 30.0
"""Longer than anything here takes; a test that waits so long has failed."""
DIGEST: Final = Digest("ab" * 32)
AT: Final = Timestamp("2026-11-29T10:40:19.925541Z")

_FROM_PLANE: Final = Draft202012Validator({**schema(), "oneOf": [{"$ref": "#/$defs/from_plane"}]})


@dataclass(slots=True, kw_only=True)
class Plane:
    """A plane that runs, and its HTTP API."""

    url: str
    folder: Path
    http: httpx2.AsyncClient

    @property
    def socket_url(self) -> str:
        return self.url.replace("http", "ws", 1) + "/driver"

    async def send(self, tool: str = "a/b", *, status: int = 201, **body: Any) -> Any:
        """Give a command; return what the plane says of it."""
        call: dict[str, Any] = {"run_id": "run-1", "data": {"tool": tool, "arguments": {}}}
        answer = await self.http.post("/v1/commands", json={**call, **body})
        assert answer.status_code == status, answer.text
        return answer.json()

    async def get(self, path: str, *, status: int = 200, **query: Any) -> Any:
        """Read something."""
        answer = await self.http.get(path, params=query or None)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def until(self, command_id: str, state: str) -> Any:
        """Wait until the command is in `state`."""
        with anyio.fail_after(PATIENCE_S):
            while (view := await self.get(f"/v1/commands/{command_id}"))["state"] != state:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        return view


def settings(folder: Path, port: int = 0) -> PlaneSettings:
    """A plane whose files are in `folder`."""
    for name in ("driver", "operator"):
        path = folder / f"{name}.token"
        if not path.exists():
            path.write_text(f"{name}-secret\n")
    return PlaneSettings(
        port=port,
        db=folder / "plane.db",
        token_file=folder / "driver.token",
        operator_token_file=folder / "operator.token",
    )


@asynccontextmanager
async def running(folder: Path, port: int = 0) -> AsyncGenerator[Plane]:
    """Run a plane in this process until the block is left."""
    urls: list[str] = []
    ready = anyio.Event()

    def note(url: str) -> None:
        urls.append(url)
        ready.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve_plane, settings(folder, port), note)
        with anyio.fail_after(PATIENCE_S):
            await ready.wait()
        async with client(urls[0]) as http:
            yield Plane(url=urls[0], folder=folder, http=http)
        tasks.cancel_scope.cancel()


async def copy_of(plane: Plane, folder: Path) -> Path:
    """Copy what the plane has on its disk at this moment: what a plane that dies now would leave behind."""
    target = anyio.Path(folder) / "copy"
    await target.mkdir()
    for suffix in ("", "-wal"):
        data = await anyio.Path(plane.folder / f"plane.db{suffix}").read_bytes()
        await (target / f"plane.db{suffix}").write_bytes(data)
    return Path(target)


def client(url: str, token: str = "operator-secret") -> httpx2.AsyncClient:
    """A client of the HTTP API."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S, trust_env=False)


@dataclass(slots=True, kw_only=True)
class Journal:
    """A driver's history: its events exactly as they go over the wire."""

    journal_id: JournalId = field(default_factory=lambda: JournalId(uuid4().hex))
    frames: list[str] = field(default_factory=list[str])
    chain: Chain | None = None

    def commit(self, data: EventData, command: str | None = None, came_from: Origin = Origin.PLANE) -> str:
        """Append an event, and return its frame."""
        body = render(
            data,
            journal_id=self.journal_id,
            seq=len(self.frames) + 1,
            at=AT,
            run_id=RunId("run-1") if command else None,
            command_id=CommandId(command) if command else None,
            operation_id=operation(command) if command and data.KIND.startswith("operation.") else None,
            origin=came_from if command else Origin.LOCAL,
            terminal=data.TERMINAL and data.requeue_of is None,
            best_effort=False,
        )
        self.chain = extend(self.chain or origin(self.journal_id), digest(body))
        self.frames.append(seal(body, self.chain).decode())
        return self.frames[-1]

    def run(
        self,
        command: str,
        end: EventData | None = None,
        came_from: Origin = Origin.PLANE,
        *,
        write: bool = True,
    ) -> list[str]:
        """Append all that becomes of a call: accepted, started, and its end."""
        accepted = CommandAccepted(kind="tool.call", content_digest=DIGEST, write=write)
        return [self.commit(data, command, came_from) for data in (accepted, STARTED, end or SUCCEEDED)]


def operation(command: str) -> OperationId:
    """A made-up operation id."""
    return OperationId("op_" + digest(command.encode())[:32])


STARTED: Final = OperationStarted(
    tool="a/b",
    attempt=1,
    idempotency_key="k",
    key_carrier="none",
    idempotent=False,
    dedupe_horizon_s=None,
    args_digest=DIGEST,
    deadline_at=AT,
)
SUCCEEDED: Final = OperationSucceeded(result={"content": []}, receipt=None, attempts=1, duration_ms=1)
UNKNOWN: Final = OperationUnknown(reason="crash_window", phase=None, attempts=1)
NOTE: Final = DriverStarted(software="effectd/test")


@dataclass(slots=True, kw_only=True)
class Driver:
    """A daemon as the plane sees it. One object is one process life."""

    plane: Plane
    driver_id: str = "sbx-1"
    journal: Journal = field(default_factory=Journal)
    boot_id: BootId = field(default_factory=lambda: BootId(uuid4().hex))

    def hello(self, **changes: Any) -> Hello:
        values: dict[str, Any] = {
            "protocol": 1,
            "driver_id": self.driver_id,
            "journal_id": self.journal.journal_id,
            "boot_id": self.boot_id,
            "software": "effectd/test",
            "capabilities": ("tool.call",),
            "last_seq": len(self.journal.frames),
            "acked_seq": 0,
            "unsettled": 0,
            "max_inflight": 8,
            "tombstone_days": 30,
            "state": "ready",
        }
        return Hello(**{**values, **changes})

    @asynccontextmanager
    async def socket(self, token: str = "driver-secret", **options: Any) -> AsyncGenerator["Socket"]:
        """An open socket, before any hello."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        defaults: dict[str, Any] = {"subprotocols": [SUBPROTOCOL], "proxy": None, "compression": None}
        async with connect(
            self.plane.socket_url, additional_headers=headers, **{**defaults, **options}
        ) as connection:
            yield Socket(connection=connection)

    @asynccontextmanager
    async def session(self, **hello: Any) -> AsyncGenerator["Socket"]:
        """A socket over which hello and welcome were said."""
        async with self.socket() as socket:
            await socket.say(self.hello(**hello))
            socket.welcome = await socket.hear("welcome")
            yield socket


@dataclass(slots=True, kw_only=True)
class Socket:
    """The driver's end of one connection."""

    connection: ClientConnection
    welcome: Any = None

    async def say(self, *frames: Frame | str | bytes) -> None:
        """Send frames."""
        for frame in frames:
            await self.connection.send(frame if isinstance(frame, str | bytes) else render_frame(frame))

    async def hear(self, kind: str | None = None) -> Any:
        """Return the next frame, which must be of `kind`."""
        with anyio.fail_after(PATIENCE_S):
            raw = json.loads(await self.connection.recv())
        assert _FROM_PLANE.is_valid(raw), raw  # pyright: ignore[reportUnknownMemberType] - partial stubs
        assert kind in (None, raw["type"]), raw
        return raw

    async def silence(self, seconds: float = 0.3) -> None:
        """Fail if the plane says anything for a while."""
        with anyio.move_on_after(seconds):
            raise AssertionError(f"the plane said {await self.connection.recv()!r}")

    async def closing(self) -> int | None:
        """Wait until the plane closes, and return its code."""
        with anyio.fail_after(PATIENCE_S):
            try:
                while True:
                    await self.connection.recv()
            except ConnectionClosed:
                return self.connection.close_code
