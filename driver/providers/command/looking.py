"""Runs a contract's `evidence`: a program that only reads, before a call and after it.

Part of `driver.providers.command`; imports its `errors`, `launch`, `leash`, `settings` and `zygote`, and
`driver.core`.

It is filled in and placed as the call's own program is, and runs on a leash: it has no outcome to lose, and
nothing of it outlives the look. What it prints on both outputs is kept up to a bound; its exit code, where it
is not 0, is a part of it.
"""

from functools import partial
from typing import Final

import anyio

from driver.core.attempts import ToolCall
from driver.providers.command import leash
from driver.providers.command.errors import Refused
from driver.providers.command.launch import fill_evidence, locate
from driver.providers.command.leash import Leash
from driver.providers.command.settings import CommandSettings
from driver.providers.command.shim.words import Command
from driver.providers.command.zygote import Zygote

LOOK_S: Final = 5.0
"""A reading command that takes longer holds its call up for nothing."""
PRINTED_BYTES_MAX: Final = 16_384


async def look(settings: CommandSettings, call: ToolCall, zygote: Zygote) -> str | None:
    """Return what the tool's reading command prints; None where it could not run, or did not end in time.

    Nothing of it is left then, whatever it has started.
    """
    try:
        async with leash.leashed(partial(_start, settings, call, zygote)) as program:
            with anyio.move_on_after(LOOK_S):
                return await _read(program)
    except (Refused, OSError):
        return None
    return None


def _start(settings: CommandSettings, call: ToolCall, zygote: Zygote) -> Leash:
    """Find the program and the folder, as a call does, and start it. Blocks.

    Raises `Refused` and `OSError`.
    """
    launch = locate(settings, fill_evidence(settings, call))
    try:
        command = Command(program=launch.path, argv=list(launch.argv), env=dict(launch.env))
        return leash.start(zygote, command, launch.folder, b"", both=True)
    finally:
        launch.close()


async def _read(program: Leash) -> str:
    found = bytearray()
    async for chunk in program.output():
        found += chunk[: PRINTED_BYTES_MAX + 1 - len(found)]
    code = await program.ended()
    cut = len(found) > PRINTED_BYTES_MAX
    text = found[:PRINTED_BYTES_MAX].decode("utf-8", errors="replace").replace("\0", "\ufffd")
    text += "\n[cut]" if cut else ""
    return text if code == 0 else f"{text}\n[exit code {code}]"
