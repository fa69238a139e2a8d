"""The daemon under measurement: its folders, its process, and the calls that a plane has it make."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import anyio

from tests.bench.processes import ROOT, ProcessEnded, alive_until

SERVER: Final = ROOT / "tests" / "servers" / "counter_mcp.py"
STOP_S: Final = 60.0
STRACE: Final = ("strace", "-f", "-b", "execve", "--seccomp-bpf", "-ttt")
"""Stops the daemon at no other calls than those that are named (`--seccomp-bpf`), and its providers never."""
SYNCS: Final = (*STRACE, "-e", "trace=fsync,fdatasync,sync_file_range,msync")

ProviderName = Literal["no-op", "MCP"]
Level = Literal["info", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A running daemon. Made by `subject`."""

    folder: Path
    process: anyio.abc.Process

    @property
    def pid(self) -> int:
        """The daemon's own process, also where it runs under strace: it stands in the lock."""
        return int((self.folder / "state" / "lock").read_text())

    @property
    def inspect_socket(self) -> Path:
        """Where it answers to readers."""
        return self.folder / "run" / "inspect.sock"

    @property
    def trace(self) -> Path:
        """The log of strace, where it runs under it."""
        return self.folder / "trace"

    async def connected(self, event: anyio.Event) -> None:
        """Wait until it has said hello to its plane. Ends the bench where it dies before."""
        try:
            await alive_until(event, self.process)
        except ProcessEnded:
            raise SystemExit(self.log()) from None

    def log(self) -> str:
        """Return the end of what it wrote."""
        return (self.folder / "log").read_text()[-4_000:]


@asynccontextmanager
async def subject(
    folder: Path,
    url: str,
    *,
    provider: ProviderName = "no-op",
    level: Level = "warning",
    trace: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> AsyncGenerator[Subject]:
    """Start a daemon with a new journal in `folder`, or the one that is there, and stop it.

    With `trace` it runs under that strace.
    """
    config = await anyio.to_thread.run_sync(_furnish, folder, url, level)
    wrapper = [*trace, "-o", str(folder / "trace")] if trace else []
    async with await anyio.open_process(
        [*wrapper, *_program(provider, config)],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=os.open(folder / "log", os.O_WRONLY | os.O_CREAT, 0o600),
    ) as process:
        made = Subject(folder=folder, process=process)
        try:
            yield made
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    os.kill(made.pid, signal.SIGTERM)
                with anyio.move_on_after(STOP_S):
                    await process.wait()
                if process.returncode is None:
                    process.kill()
                await process.wait()
        if process.returncode != 0:
            raise SystemExit(f"the daemon ended with {process.returncode}:\n{made.log()}")


def server_argv(folder: Path) -> list[str]:
    """Return the command line of the MCP server that counts in `folder`."""
    return [sys.executable, "-I", "-S", str(SERVER), str(folder / "ledger"), "--no-fsync"]


def can_trace() -> bool:
    """Whether syncs can be counted here."""
    return shutil.which("strace") is not None


def _furnish(folder: Path, url: str, level: Level) -> Path:
    folder.mkdir(exist_ok=True)
    token = folder / "token"
    token.write_text("bench\n")
    token.chmod(0o600)
    config = folder / "effectd.toml"
    config.write_text(_config(folder, url, level))
    return config


def _program(provider: ProviderName, config: Path) -> list[str]:
    if provider == "no-op":
        return [sys.executable, "-m", "tests.bench.subjects.noop", str(config)]
    return [str(Path(sys.executable).parent / "effectd"), "run", "--config", str(config)]


def _config(folder: Path, url: str, level: Level) -> str:
    tables: dict[str, dict[str, object]] = {
        "driver": {
            "id": "bench",
            "state_dir": str(folder / "state"),
            "runtime_dir": str(folder / "run"),
        },
        "control": {"url": url, "scope": "bench", "token_file": str(folder / "token")},
        "journal": {"max_bytes": 10**11},
        "log": {"format": "json", "level": level},
        "providers.bench": {
            "kind": "mcp",
            "argv": server_argv(folder),
        },
    }
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        for name, keys in tables.items()
    )
