"""The daemon under measurement: its folders, its process, what the kernel counted for it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import anyio

SERVER: Final = Path(__file__).resolve().parents[1] / "servers" / "counter_mcp.py"
ROOT: Final = Path(__file__).resolve().parents[2]
SYNCS: Final = "fsync,fdatasync,sync_file_range,msync"
START_S: Final = 20.0
TICKS: Final = os.sysconf("SC_CLK_TCK")

ProviderName = Literal["no-op", "MCP"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A running daemon. Made by `subject`."""

    folder: Path
    process: anyio.abc.Process

    @property
    def pid(self) -> int:
        """The daemon's own process, also where it runs under strace: it stands in the lock."""
        return int((self.folder / "state" / "lock").read_text())

    def cpu_s(self) -> float:
        """Return the processor time that it has used, all its threads, without its children."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss_mb(self) -> float:
        """Return its resident memory."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        line = next(line for line in lines if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def log(self) -> str:
        """Return the end of what it wrote."""
        return (self.folder / "log").read_text()[-4_000:]

    def trace(self) -> str:
        """Return the log of strace."""
        return (self.folder / "syncs").read_text()


@asynccontextmanager
async def subject(folder: Path, provider: ProviderName, url: str, *, traced: bool) -> AsyncGenerator[Subject]:
    """Start a daemon with a new journal in `folder`, and stop it; with `traced`, under strace."""
    config = await anyio.to_thread.run_sync(_furnish, folder, url)
    trace = [
        "strace",
        "-f",
        "-b",
        "execve",
        "--seccomp-bpf",
        "-ttt",
        "-e",
        f"trace={SYNCS}",
        "-o",
        str(folder / "syncs"),
    ]
    async with await anyio.open_process(
        [*(trace if traced else []), *_program(provider, config)],
        cwd=ROOT,
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
                await process.wait()
        if process.returncode != 0:
            raise SystemExit(f"the daemon ended with {process.returncode}:\n{made.log()}")


def _furnish(folder: Path, url: str) -> Path:
    folder.mkdir()
    token = folder / "token"
    token.write_text("bench\n")
    token.chmod(0o600)
    config = folder / "effectd.toml"
    config.write_text(_config(folder, url))
    return config


def can_trace() -> bool:
    """Whether syncs can be counted here."""
    return shutil.which("strace") is not None


def _program(provider: ProviderName, config: Path) -> list[str]:
    if provider == "no-op":
        return [sys.executable, "-m", "tests.bench.noop", str(config)]
    return [str(Path(sys.executable).parent / "effectd"), "run", "--config", str(config)]


def _config(folder: Path, url: str) -> str:
    tables: dict[str, dict[str, object]] = {
        "driver": {
            "id": "bench",
            "state_dir": str(folder / "state"),
            "runtime_dir": str(folder / "run"),
        },
        "control": {"url": url, "scope": "bench", "token_file": str(folder / "token")},
        "log": {"format": "json"},
        "providers.bench": {
            "kind": "mcp",
            "argv": [sys.executable, "-I", "-S", str(SERVER), str(folder / "ledger"), "--no-fsync"],
        },
    }
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        for name, keys in tables.items()
    )
