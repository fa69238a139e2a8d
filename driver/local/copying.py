"""Copies the live journal by a process of its own, while its checkpoints wait.

Part of `driver.local`; imports anyio and the store. Closing any descriptor of the journal's file in the
daemon would drop the locks that SQLite holds on it (`store.backup`).
"""

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from subprocess import DEVNULL
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream

from store.journal import Journal
from store.records import JsonObject

Tell = Callable[[JsonObject], Awaitable[None]]

GRACE_S: Final = 5.0
"""How long a copy that is given up may take to remove what it has written."""
_GONE: Final[JsonObject] = {
    "type": "failed",
    "message": "the copying process ended without a word: look at the room in memory and on the disk",
}


async def copy_journal(journal: Journal, target: Path, tell: Tell) -> JsonObject:
    """Copy the journal to `target`, and return the copy's last word: `made`, or `failed` and why.

    `tell` gets each word about its progress. Commits go on meanwhile. Cancelled, it leaves nothing behind.
    Raises as `Journal.read`.
    """
    async with journal.held() as source:
        program = [sys.executable, "-P", "-m", "store.backup", str(source), str(target)]
        process = await anyio.open_process(
            program, stdin=DEVNULL, stderr=DEVNULL, env={"PATH": os.defpath}, cwd="/", start_new_session=True
        )
        try:
            assert process.stdout is not None, "it was asked for"
            return await _listen(process.stdout, tell)
        finally:
            await _end(process)


async def _listen(stdout: ByteReceiveStream, tell: Tell) -> JsonObject:
    rest = ""
    async for piece in TextReceiveStream(stdout):
        *lines, rest = (rest + piece).split("\n")
        for line in lines:
            word: JsonObject = json.loads(line)
            if word["type"] != "progress":
                return word
            await tell(word)
    return _GONE


async def _end(process: Process) -> None:
    """Let it end by itself where it has said its last word; one that is given up is asked to clean up."""
    with anyio.CancelScope(shield=True):
        with anyio.move_on_after(GRACE_S):
            if process.returncode is None:
                process.terminate()
            await process.wait()
        if process.returncode is None:
            process.kill()
        await process.aclose()
