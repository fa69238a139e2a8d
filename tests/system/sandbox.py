"""A sandbox with a daemon in it: its folders, configuration, lives, and the ledger of what really happened.

A life is started from the zygote (`start`) or as the real executable (`execute`); either way it is a process
of its own that can be killed at any moment. Everything is waited for by an event: a frame, a datagram of
sd_notify, the end of a process.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
from anyio.abc import TaskGroup

from tests.system.history import Json
from tests.system.plane import PATIENCE_S, TOKEN, ScriptedPlane
from tests.system.watching import file_until
from tests.system.zygote import ROOT, Zygote

SERVER: Final = ROOT / "tests" / "servers" / "counter_mcp.py"
KILL_AT: Final = "EFFECTD_KILL_AT"
DATAGRAM_BYTES_MAX: Final = 4_096

Tables = Mapping[str, Mapping[str, Any]]


class Gone(AssertionError):
    """It has ended, and had not become ready."""


@dataclass(slots=True)
class Life:
    """One process of the daemon."""

    pid: int
    output: Path
    channel: socket.socket
    """Where it notifies its service manager."""
    pidfd: int | None
    """None where it had ended, and was reaped, before anybody could hold it."""
    code: int | None = None
    ended: anyio.Event = field(default_factory=anyio.Event)
    states: list[str] = field(default_factory=list[str])
    """What it told its service manager, in order."""
    heard: anyio.Event = field(default_factory=anyio.Event)
    """Set, and replaced, with each thing that it told."""
    settled: anyio.Event = field(default_factory=anyio.Event)
    """Set once it is ready, or never will be."""
    listening: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def text(self) -> str:
        """Everything it wrote to standard output and standard error."""
        return self.output.read_text(errors="replace")

    async def logged(self, text: str) -> None:
        """Return once this text stands in what it wrote."""
        await file_until(self.output, lambda: text in self.text)

    async def told(self, event: str) -> list[Json]:
        """Return the log lines with this event name, once there is one: lines come out a moment later."""
        await file_until(self.output, lambda: bool(self.lines(event)))
        return self.lines(event)

    def lines(self, event: str) -> list[Json]:
        """Return the log lines with this event name that have been written by now."""
        found = (json.loads(line) for line in self.text.splitlines() if line.startswith("{"))
        return [line for line in found if line.get("event") == event]

    def send(self, number: signal.Signals) -> None:
        """Signal it; one that has ended is past caring."""
        if self.pidfd is not None and not self.ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def stand_for(self, pid: int) -> None:
        """Signal another process from now on: the daemon that this one is a tracer of."""
        self.let_go()
        self.pid, self.pidfd = pid, os.pidfd_open(pid)

    def let_go(self) -> None:
        """Hold it no longer."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

    async def exit_code(self) -> int:
        """Return its exit code, or minus the signal that ended it, once it has ended."""
        with anyio.move_on_after(PATIENCE_S):
            await self.ended.wait()
        assert self.code is not None, f"the daemon still runs after {PATIENCE_S} s: {self.text[-4000:]}"
        return self.code

    async def kill(self) -> None:
        """End it as a power switch would."""
        self.send(signal.SIGKILL)
        await self.exit_code()

    async def stop(self) -> int:
        """Ask it to stop, once it is ready; return its exit code."""
        await self.ready()
        self.send(signal.SIGTERM)
        return await self.exit_code()

    async def ready(self) -> None:
        """Return once it has told its service manager that it is ready. Raises `Gone`."""
        with anyio.move_on_after(PATIENCE_S):
            await self.settled.wait()
        if "READY=1" not in self.states:
            error = AssertionError if self.code is None else Gone
            raise error(f"it did not become ready: {self.code} {self.text[-4000:]}")

    async def listen(self) -> None:
        """Note what it tells its service manager, for as long as it lives."""
        with self.channel:
            while not self.ended.is_set():
                with anyio.CancelScope() as self.listening:
                    await anyio.wait_readable(self.channel)
                    self.states.extend(self.channel.recv(DATAGRAM_BYTES_MAX).decode().splitlines())
                    self.heard.set()
                    self.heard = anyio.Event()
                if "READY=1" in self.states:
                    self.settled.set()

    def bury(self, code: int) -> None:
        """Note that it has ended."""
        self.code = code
        self.ended.set()
        self.settled.set()
        self.listening.cancel()


@dataclass(slots=True, kw_only=True)
class Sandbox:
    """See the module. Made by `sandbox`."""

    root: Path
    plane: ScriptedPlane | None
    zygote: Zygote
    tasks: TaskGroup
    tables: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    lives: list[Life] = field(default_factory=list[Life])
    orphans: int = 0
    """Servers that outlived their daemon for longer than anybody waits."""

    @property
    def state(self) -> Path:
        """The state folder."""
        return self.root / "state"

    @property
    def runtime(self) -> Path:
        """The runtime folder, with the sockets."""
        return self.root / "run"

    @property
    def ledger(self) -> Path:
        """Where the counting server writes a line for each effect."""
        return self.root / "ledger"

    @property
    def token(self) -> Path:
        """The token file."""
        return self.root / "token"

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.root / "effectd.toml"

    def configure(self, **tables: Mapping[str, Any]) -> None:
        """Write the configuration: the usual one, with these tables' keys over it (`__` stands for a dot)."""
        merged = self._usual()
        for name, keys in tables.items():
            merged.setdefault(name.replace("__", "."), {}).update(keys)
        self.tables = merged
        self.config.write_text(_toml(merged))

    def _usual(self) -> dict[str, dict[str, Any]]:
        server = [sys.executable, "-I", "-S", str(SERVER), str(self.ledger)]
        usual: dict[str, dict[str, Any]] = {
            "driver": {
                "id": "sbx-test",
                "state_dir": str(self.state),
                "runtime_dir": str(self.runtime),
                "drain_s": 5,
            },
            "log": {"level": "info", "format": "json"},
            # no verdict but those that a test asks for
            "supervisor": {"min_age_s": 3_600},
            "providers.counter": {"kind": "mcp", "argv": server},
            "providers.reader": {"kind": "mcp", "argv": server},
            "providers.reader.tools.count": {"effect": "read"},
        }
        if self.plane is not None:
            usual["control"] = {"url": self.plane.url, "scope": "test", "token_file": str(self.token)}
        return usual

    # --- lives

    def start(self, *, kill_at: str | None = None, patch: str | None = None, **env: str) -> Life:
        """Fork a life from the zygote. `kill_at` names the boundary where it kills itself."""
        if kill_at is not None:
            env[KILL_AT] = kill_at
        return self._fork(["run"], env, patch)

    async def command(self, *arguments: str) -> Life:
        """Run another subcommand of `effectd`, as a process that was forked too, to its end."""
        asked = self._fork([*arguments], {}, None)
        await asked.exit_code()
        return asked

    def _fork(self, arguments: list[str], env: dict[str, str], patch: str | None) -> Life:
        output, channel = self._prepare(env)
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        arguments = [*arguments, "--config", str(self.config)]
        reports = self.zygote.fork(arguments, env=env, patch=patch, output=descriptor)
        os.close(descriptor)
        line, rest = _first_line(reports)
        pid = json.loads(line)["pid"]
        life = Life(pid, output, channel, _hold(pid))
        self._attend(life)
        self.tasks.start_soon(_watch_reports, life, reports, rest)
        return life

    async def execute(self, *wrapper: str, kill_at: str | None = None, **env: str) -> Life:
        """Start a life as the executable that users run; `wrapper` is a command line to run it under."""
        if kill_at is not None:
            env[KILL_AT] = kill_at
        output, channel = self._prepare(env)
        effectd = str(Path(sys.executable).parent / "effectd")
        # a wrapper that ends with a module is an interpreter that has effectd's main of its own
        program = list(wrapper) if "-m" in wrapper else [*wrapper, effectd]
        command = [*program, "run", "--config", str(self.config)]
        with output.open("ab") as stream:
            process = await anyio.open_process(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env={**os.environ, **env},
                cwd=ROOT,
                start_new_session=True,
            )
        life = Life(process.pid, output, channel, _hold(process.pid))
        self._attend(life)
        self.tasks.start_soon(_watch_process, life, process)
        return life

    def _attend(self, life: Life) -> None:
        self.lives.append(life)
        self.tasks.start_soon(life.listen)

    def _prepare(self, env: dict[str, str]) -> tuple[Path, socket.socket]:
        number = len(self.lives)
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        channel.bind(str(self.root / f"notify-{number}"))
        env["NOTIFY_SOCKET"] = str(self.root / f"notify-{number}")
        return self.root / f"output-{number}", channel

    def show(self) -> None:
        """Print what the newest lives wrote, for pytest to show with a failure."""
        for life in self.lives[-2:]:
            print(f"--- life {life.pid}, exit code {life.code}:\n{life.text[-6000:]}")  # noqa: T201

    # --- what really happened

    def effects(self) -> list[Json]:
        """Return the ledger's lines."""
        return [json.loads(line) for line in self.ledger.read_text().splitlines()]

    def executions(self) -> Counter[str]:
        """Return how often each idempotency key was executed."""
        return Counter(line["key"] for line in self.effects())

    async def effects_reach(self, count: int) -> None:
        """Return once the ledger has `count` lines."""
        await file_until(self.ledger, lambda: len(self.effects()) >= count)

    async def status(self) -> Json:
        """Return what the newest life says of itself on its local socket, once it is ready."""
        await self.lives[-1].ready()
        async with self._client() as client:
            found: Json = (await client.get("/v1/status")).json()
            return found

    async def operation(self, operation_id: str) -> Json:
        """Return the whole story of an operation as the newest life tells it on its local socket."""
        async with self._client() as client:
            found: Json = (await client.get(f"/v1/operations/{operation_id}")).json()
            return found

    async def healthy(self) -> tuple[int, Json]:
        """Return the status and the answer of the newest life's word on its health."""
        async with self._client() as client:
            answer = await client.get("/healthz")
            return answer.status_code, answer.json()

    async def post(self, path: str, body: Json) -> tuple[int, Json]:
        """Return the status and the answer of a write on the newest life's local socket."""
        async with self._client() as client:
            answer = await client.post(path, json=body)
            return answer.status_code, answer.json()

    async def post_for_lines(self, path: str, body: Json) -> list[Json]:
        """Return the lines that a write on the newest life's local socket is answered with."""
        async with self._client() as client:
            answer = await client.post(path, json=body)
            return [json.loads(line) for line in answer.text.splitlines()]

    async def events_until(self, reached: Callable[[Json], bool]) -> None:
        """Follow the journal on the newest life's local socket, until an event that `reached` accepts."""
        await self.lives[-1].ready()
        with anyio.fail_after(PATIENCE_S):
            async with (
                self._client() as client,
                client.stream("GET", "/v1/events?after=0&follow=true") as answer,
            ):
                async for line in answer.aiter_lines():
                    if line and reached(json.loads(line)):
                        return

    def _client(self) -> httpx2.AsyncClient:
        transport = httpx2.AsyncHTTPTransport(uds=str(self.runtime / "operator.sock"))
        return httpx2.AsyncClient(transport=transport, base_url="http://effectd", timeout=PATIENCE_S)

    async def quiet(self) -> None:
        """Return once no server of this sandbox is left that could still write to the ledger.

        Raises AssertionError where one outlives it, and counts it.
        """
        for pid in self._servers():
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                with anyio.move_on_after(PATIENCE_S) as patience:
                    await anyio.wait_readable(descriptor)
                os.close(descriptor)
                self.orphans += patience.cancelled_caught
                assert not patience.cancelled_caught, f"a server outlives its daemon, process {pid}"

    def _servers(self) -> Iterator[int]:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.fsencode(self.ledger) in (process / "cmdline").read_bytes():
                    yield int(process.name)


def _hold(pid: int) -> int | None:
    """Return a pidfd of a process that somebody else reaps: a short one may be gone, when others are slow."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _first_line(descriptor: int) -> tuple[bytes, bytes]:
    """Read the zygote's first report: it writes it at once."""
    text = b""
    while b"\n" not in text:
        chunk = os.read(descriptor, DATAGRAM_BYTES_MAX)
        assert chunk, "the zygote is gone"
        text += chunk
    line, _, rest = text.partition(b"\n")
    return line, rest


async def _watch_reports(life: Life, reports: int, rest: bytes) -> None:
    while b"\n" not in rest:
        await anyio.wait_readable(reports)
        chunk = os.read(reports, DATAGRAM_BYTES_MAX)
        assert chunk, "the zygote is gone"
        rest += chunk
    os.close(reports)
    life.bury(json.loads(rest)["code"])


async def _watch_process(life: Life, process: anyio.abc.Process) -> None:
    life.bury(await process.wait())


def _toml(tables: Tables) -> str:
    """Render tables of strings, numbers, booleans and lists: JSON's spelling of those is TOML's too."""
    parts = [
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        for name, keys in tables.items()
    ]
    return "\n".join(parts)


@asynccontextmanager
async def sandbox(
    zygote: Zygote, plane: ScriptedPlane | None, **tables: Mapping[str, Any]
) -> AsyncGenerator[Sandbox]:
    """Make a sandbox, and leave nothing of it behind: no process, no file."""
    # not pytest's folder: a socket's path may have 107 bytes
    root = Path(tempfile.mkdtemp(prefix="effectd-"))
    try:
        async with anyio.create_task_group() as tasks:
            made = Sandbox(root=root, plane=plane, zygote=zygote, tasks=tasks)
            made.ledger.touch()
            made.token.write_text(TOKEN + "\n")
            made.token.chmod(0o600)
            made.configure(**tables)
            try:
                yield made
            except BaseException:
                made.show()
                raise
            finally:
                await _close(made)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@asynccontextmanager
async def standing(zygote: Zygote, **tables: Mapping[str, Any]) -> AsyncGenerator[Sandbox]:
    """Make one without a plane, whose first life is ready."""
    async with sandbox(zygote, None, **tables) as made:
        await made.start().ready()
        yield made


async def _close(made: Sandbox) -> None:
    with anyio.CancelScope(shield=True):
        for life in made.lives:
            await life.kill()
            life.let_go()
        await made.quiet()
