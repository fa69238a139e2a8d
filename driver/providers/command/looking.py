"""Runs a contract's `evidence`: a program that only reads, before a call and after it.

Part of `driver.providers.command`; imports its `errors`, `launch` and `settings`, and `driver.core`.

It is filled in and placed as the call's own program is, and runs without a shim: it has no outcome to lose.
What it prints on both outputs is kept up to a bound; its exit code, where it is not 0, is a part of it.
"""

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process

from driver.core.attempts import ToolCall
from driver.providers.command.errors import Refused
from driver.providers.command.launch import fill_evidence, locate
from driver.providers.command.settings import CommandSettings

LOOK_S: Final = 5.0
"""A reading command that takes longer holds its call up for nothing."""
PRINTED_BYTES_MAX: Final = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    """What is started, and where."""

    words: tuple[str, ...]
    folder: Path
    env: Mapping[str, str]


async def look(settings: CommandSettings, call: ToolCall) -> str | None:
    """Return what the tool's reading command prints; None where it could not run, or did not end in time."""
    try:
        command = await anyio.to_thread.run_sync(_located, settings, call)
    except Refused:
        return None
    return await _printed(command)


def _located(settings: CommandSettings, call: ToolCall) -> _Command:
    """Find the program and the folder, as a call does. Blocks. Raises `Refused`."""
    launch = locate(settings, fill_evidence(settings, call))
    try:
        return _Command(words=(launch.path, *launch.argv[1:]), folder=launch.folder_path, env=launch.env)
    finally:
        launch.close()


async def _printed(command: _Command) -> str | None:
    try:
        process = await anyio.open_process(
            command.words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=command.folder,
            env=command.env,
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        with anyio.move_on_after(LOOK_S):
            return await _read(process)
    finally:
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.aclose()
    return None


async def _read(process: Process) -> str:
    assert process.stdout is not None, "it was asked for"
    found = bytearray()
    async for chunk in process.stdout:
        found += chunk[: PRINTED_BYTES_MAX + 1 - len(found)]
    code = await process.wait()
    cut = len(found) > PRINTED_BYTES_MAX
    text = found[:PRINTED_BYTES_MAX].decode("utf-8", errors="replace").replace("\0", "\ufffd")
    text += "\n[cut]" if cut else ""
    return text if code == 0 else f"{text}\n[exit code {code}]"
