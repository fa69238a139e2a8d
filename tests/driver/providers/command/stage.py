"""A command provider on a stage: real programs, gates that they stop at, and what is left of them."""

import json
import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

import anyio

from driver.core.attempts import Answered, Phase, Report, ToolCall
from driver.core.classify import Ending, classify
from driver.core.contracts import Contract, KeyCarrier, NoKey
from driver.providers.command.cgroup import delegated, make, remove
from driver.providers.command.provider import CommandProvider
from driver.providers.command.records import Ended, Origin, Started
from driver.providers.command.settings import CommandSettings, Program
from driver.providers.command.spool import Place, Spool
from driver.providers.readoption import Finished, Readopting
from store.records import JsonObject, OperationId

GROUPS_S: Final = 60.0
"""Far longer than any test holds a command."""
ANY: Final = Program.declared("=arguments.argv")
"""The tool `run`: whatever its argument `argv` says."""
EVIDENT: Final = Program.declared(["true"], evidence="=arguments.argv")
"""A tool whose reading command its argument `argv` names."""
DEADLINE_S = 3.0
"""For a call that is ended for its time: by then its program runs, however busy the machine is."""
_marks = count(os.getpid() * 1_000)


class Gate:
    """Where a program stops until the test lets it go: `$1` and `$2` of a shell script."""

    def __init__(self, folder: Path) -> None:
        self.here = folder / f"here-{next(_marks)}"
        self.go = folder / f"go-{next(_marks)}"
        os.mkfifo(self.here)
        os.mkfifo(self.go)

    @property
    def paths(self) -> tuple[str, str]:
        """The arguments of a script that contains `STOP`."""
        return str(self.here), str(self.go)

    async def reached(self) -> None:
        """Wait until the program stands at the gate."""
        with anyio.fail_after(30):
            await anyio.to_thread.run_sync(self.here.read_text, abandon_on_cancel=True)

    async def open(self) -> None:
        """Let the program go on."""
        with anyio.fail_after(30):
            await anyio.to_thread.run_sync(self.go.write_text, "go\n", abandon_on_cancel=True)


STOP: Final = 'echo here > "$1"; read line < "$2";'
"""What a shell script stops with at a gate."""


def mark() -> str:
    """Return a duration for `sleep` that no other process on this machine sleeps for."""
    return f"1000.{next(_marks)}"


def asleep(marked: str) -> list[int]:
    """Return the processes that sleep for the duration of `mark`."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", marked.encode()]:
                found.append(int(folder.name))
    return found


def sh(script: str, *arguments: str) -> JsonObject:
    """Return the arguments of `run` for a shell script."""
    return {"argv": ["sh", "-c", script, "sh", *arguments]}


def ending(report: Report, phase: Phase, contract: Contract | None = None) -> Ending:
    """Return how the daemon judges a report."""
    return classify(report, phase, contract or Contract())


def answer(report: Report) -> JsonObject:
    """Return the result of a call that was answered."""
    assert isinstance(report, Answered), report
    return report.result


@dataclass
class Stage:
    """The provider, and the phases of the last dispatch."""

    provider: CommandProvider
    settings: CommandSettings
    phases: list[Phase] = field(default_factory=list[Phase])
    _ids: "count[int]" = field(default_factory=lambda: count(1))

    def call(
        self, arguments: JsonObject, *, tool: str = "run", timeout_s: float = 20.0, attempt: int = 1
    ) -> ToolCall:
        """Return a call with an operation id of its own."""
        return ToolCall(
            operation_id=OperationId(f"op_{next(self._ids):032x}"),
            attempt=attempt,
            tool=tool,
            arguments=arguments,
            key="op_key",
            timeout_s=timeout_s,
        )

    async def dispatch(self, call: ToolCall) -> Report:
        """Dispatch `call`; its phases are in `phases` afterwards."""
        self.phases = []
        return await self.provider.dispatch(call, self.phases.append)

    async def run(self, arguments: JsonObject, *, tool: str = "run", timeout_s: float = 20.0) -> Report:
        """Dispatch a call with these arguments."""
        return await self.dispatch(self.call(arguments, tool=tool, timeout_s=timeout_s))

    async def judged(self, arguments: JsonObject, contract: Contract | None = None) -> Ending:
        """Dispatch a call, and return how the daemon judges it."""
        report = await self.run(arguments)
        return ending(report, self.phases[-1], contract)

    def place(self, call: ToolCall) -> Place:
        """Return the folder of an attempt."""
        return Spool(self.settings.spool).place(call.operation_id, call.attempt)

    async def started(self, call: ToolCall) -> Started:
        """Return what the shim of a running attempt wrote at its start."""
        started = await anyio.to_thread.run_sync(self.place(call).started)
        assert started is not None
        return started

    async def ended(self, call: ToolCall) -> Ended:
        """Return what the shim of an attempt wrote at its end."""
        ended = await anyio.to_thread.run_sync(self.place(call).ended)
        assert ended is not None
        return ended


def settings(
    folder: Path,
    programs: Mapping[str, Program] | None = None,
    *,
    cwd: Path | None = None,
    roots: Sequence[Path] | None = None,
    env: Mapping[str, str] | None = None,
    env_files: Mapping[str, Path] | None = None,
    key: KeyCarrier | None = None,
) -> CommandSettings:
    """Return a provider's settings with everything inside `folder`."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return CommandSettings(
        name="shell",
        programs={"run": ANY, **(programs or {})},
        spool=folder / "spool",
        cwd=cwd or work,
        roots=tuple(roots or (work,)),
        env=env or {},
        env_files=env_files or {},
        key=key or NoKey(),
    )


@asynccontextmanager
async def staged(chosen: CommandSettings, *, group: bool = True) -> AsyncGenerator[Stage]:
    """Run a provider, and close it at the end. Without `group`, as on a machine that gives it no cgroup."""
    provider = CommandProvider(chosen)
    conforming: Readopting = provider
    async with anyio.create_task_group() as tasks:
        await tasks.start(conforming.run)
        if not group:
            provider._group = None
        yield Stage(provider, chosen)
        await provider.close()


def grouped() -> bool:
    """Return whether this machine lets us make cgroups."""
    parent = delegated()
    group = make(parent / f"effectd-test-{next(_marks)}") if parent else None
    if group is not None:
        remove(group)
    return group is not None


def groups() -> set[Path]:
    """Return the cgroups of commands that there are, whoever made them."""
    parent = delegated()
    return set() if parent is None else set(parent.glob("effectd-op_*"))


def left_since(before: set[Path]) -> set[Path]:
    """Return the new cgroups that stay. One of a test in another process goes when that has ended. Blocks."""
    made = groups() - before
    deadline = time.monotonic() + GROUPS_S
    while (made := made & groups()) and time.monotonic() < deadline:
        time.sleep(0.05)  # nobody is told when a cgroup goes
    return made


def rewrite(place: Place, **changes: str) -> None:
    """Change what an attempt's folder says about its beginning."""
    origin = place.origin()
    assert origin is not None
    data = json.loads(origin.model_dump_json()) | changes
    (place.folder / "origin").write_text(Origin.model_validate(data).model_dump_json())


def finished(found: object) -> Finished:
    """Return what was found, which must be an end."""
    assert isinstance(found, Finished), found
    return found
