"""A provider on a stage: a real server, a real ledger, and a record of what the provider said."""

import json
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import anyio

from driver.core.attempts import Phase, Report, ToolCall
from driver.core.contracts import KeyCarrier, MetaKey
from driver.providers.mcp.provider import McpProvider
from driver.providers.mcp.settings import HttpServer, McpSettings, StdioServer
from store.records import JsonObject, OperationId

SERVERS = Path(__file__).parents[3] / "servers"
LATE_S = 30.0
"""How long late answers are listened to: far longer than any takes, and no test waits for its end."""
DEADLINE_S = 1.0
"""For a call that is not answered in time, on purpose: by then it must have left, on any machine."""


class Stage:
    """The provider, what it reported late, and what its server wrote down."""

    def __init__(self, ledger: Path) -> None:
        self.ledger = ledger
        self.late: list[tuple[OperationId, int, Report]] = []
        self.phases: list[Phase] = []
        self.provider: McpProvider | None = None
        self._heard = anyio.Event()
        self._ids = count(1)

    def on_late(self, operation_id: OperationId, attempt: int, report: Report) -> None:
        """Keep a late answer."""
        self.late.append((operation_id, attempt, report))
        self._heard.set()
        self._heard = anyio.Event()

    async def hear(self, answers: int = 1) -> None:
        """Wait until that many late answers have come."""
        with anyio.fail_after(30):
            while len(self.late) < answers:
                await self._heard.wait()

    def call(
        self,
        tool: str,
        arguments: JsonObject | None = None,
        *,
        timeout_s: float = 10.0,
        key: str | None = "op_key",
        traceparent: str | None = None,
    ) -> ToolCall:
        """Return a call with an operation id of its own."""
        return ToolCall(
            operation_id=OperationId(f"op_{next(self._ids)}"),
            attempt=1,
            tool=tool,
            arguments=arguments or {},
            key=key,
            timeout_s=timeout_s,
            traceparent=traceparent,
        )

    async def connect(self) -> None:
        """Have the server started, which would cost the first call some of its time."""
        assert self.provider is not None
        assert await self.provider.prepare(self.call("act")) is None

    async def dispatch(self, call: ToolCall) -> Report:
        """Dispatch `call`; its phases are in `phases` afterwards."""
        assert self.provider is not None
        self.phases = []
        return await self.provider.dispatch(call, self.phases.append)

    async def cancel(self, call: ToolCall) -> None:
        """Dispatch `call`, and cancel it once it has left; its phases are in `phases` afterwards."""
        assert self.provider is not None
        self.phases = []
        scope = anyio.CancelScope()

        def progress(reached: Phase) -> None:
            self.phases.append(reached)
            if reached is Phase.WRITTEN:
                scope.cancel()

        with scope:
            await self.provider.dispatch(call, progress)
        assert scope.cancelled_caught

    async def act(self, mode: str, *, timeout_s: float = 10.0, **arguments: object) -> Report:
        """Let the hostile server do `mode`."""
        given: JsonObject = json.loads(json.dumps({"mode": mode, **arguments}))
        return await self.dispatch(self.call("act", given, timeout_s=timeout_s))

    def effects(self) -> list[JsonObject]:
        """Return what the server's ledger holds."""
        return (
            [json.loads(line) for line in self.ledger.read_text().splitlines()]
            if self.ledger.exists()
            else []
        )

    def pids(self) -> set[int]:
        """Return the processes that had effects."""
        return {pid for effect in self.effects() if isinstance(pid := effect["pid"], int)}


def is_running(pid: int) -> bool:
    """Return whether a process is there, and not only waiting to be noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(pid: int) -> None:
    """Wait until a process is not there any more; the kernel tells nobody but its parent."""
    with anyio.fail_after(30):
        while is_running(pid):  # noqa: ASYNC110
            await anyio.sleep(0.02)


def stdio(
    script: str,
    ledger: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    env_files: Mapping[str, Path] | None = None,
) -> StdioServer:
    """Return one of the servers in `tests/servers`."""
    argv = (sys.executable, "-I", "-S", str(SERVERS / script), str(ledger), *options)
    return StdioServer(argv=argv, cwd=ledger.parent, env=env or {}, env_files=env_files or {})


def program(cwd: Path, argv: Sequence[str]) -> StdioServer:
    """Return any program as a server."""
    return StdioServer(argv=tuple(argv), cwd=cwd)


@asynccontextmanager
async def staged(
    server: StdioServer | HttpServer,
    ledger: Path,
    *,
    key: KeyCarrier | None = None,
    late_result_s: float = LATE_S,
    answer_max_bytes: int = 1_048_576,
    trust_annotations: bool = False,
) -> AsyncGenerator[Stage]:
    """Run a provider of `server`, and close it at the end."""
    stage = Stage(ledger)
    settings = McpSettings(
        name="stage",
        server=server,
        key=key or MetaKey(),
        late_result_s=late_result_s,
        answer_max_bytes=answer_max_bytes,
        trust_annotations=trust_annotations,
    )
    stage.provider = provider = McpProvider(settings, stage.on_late)
    async with anyio.create_task_group() as tasks:
        await tasks.start(provider.run)
        yield stage
        await provider.close()
