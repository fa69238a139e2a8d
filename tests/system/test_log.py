"""A daemon whose log nobody reads, or that cannot be written, goes on as if there were none."""

import fcntl
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

import anyio
import pytest

from tests.system.plane import ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Life, Sandbox, sandbox
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]

CALLS: Final = 100
PIPE_BYTES: Final = 16_384
STALL_S: Final = 2.0

Fate = Literal["full", "closed", "no room"]


def _end_of_log(path: Path, fate: Fate) -> int | None:
    """Put something at `path` that takes no line; return what must stay open for that."""
    if fate == "no room":
        path.symlink_to("/dev/full")
        return None
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return reading


@asynccontextmanager
async def unheard(
    zygote: Zygote, fate: Fate, patch: str | None = None
) -> AsyncGenerator[tuple[ScriptedPlane, Sandbox, Life]]:
    """A daemon that logs all it can to where it can not, and some calls for it."""
    async with scripted_plane() as plane, sandbox(zygote, plane, log={"level": "debug"}) as made:
        output = made.root / "output-0"
        reading = _end_of_log(output, fate)
        life = made.start(patch=patch)
        # whoever shows what it wrote must not wait for it
        output.unlink()
        output.touch()
        await life.ready()
        if reading is not None and fate == "closed":
            os.close(reading)
        await plane.connected()
        await plane.give(*(call(f"cmd-{number}", n=number) for number in range(CALLS)))
        try:
            yield plane, made, life
        finally:
            if reading is not None and fate == "full":
                os.close(reading)


@pytest.mark.parametrize("fate", ["full", "closed", "no room"])
async def test_a_log_that_takes_nothing_holds_nothing_up(zygote: Zygote, fate: Fate) -> None:
    """Every call is made and has its receipt; the socket answers, and counts the lines that are lost."""
    async with unheard(zygote, fate) as (plane, made, life):
        await plane.answered()
        assert len(made.effects()) == CALLS
        async with made._client() as client:
            metrics = (await client.get("/metrics")).text
        (line,) = (row for row in metrics.splitlines() if row.startswith("effectd_log_lines_dropped_total"))
        assert float(line.split()[1]) >= (0 if fate == "full" else CALLS)
        assert (await made.status())["state"] == "ready"
        assert await life.stop() == 0


async def test_a_log_that_is_written_in_line_holds_everything_up(zygote: Zygote) -> None:
    """Negative control: where lines are written when they are logged, a stopped reader stops it all."""
    async with unheard(zygote, "full", patch="log_in_line") as (plane, _made, life):
        with anyio.move_on_after(STALL_S):
            await plane.answered()
        assert plane.unanswered()
        await life.kill()


async def test_lines_say_whose_daemon_they_are_and_what_they_are_about(zygote: Zygote) -> None:
    """Each line of a real daemon is JSON, with its own ids; those about a call have the call's."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start()
        await plane.give(call("cmd-1", n=1))
        receipt = await plane.receipt_of("cmd-1")
        assert await life.stop() == 0
        lines = [json.loads(line) for line in life.text.splitlines()]
        assert {line["driver_id"] for line in lines} == {"sbx-test"}
        assert len({line["boot_id"] for line in lines}) == 1
        about = [line for line in lines if line.get("operation_id") == receipt["operation_id"]]
        told = [line["event"] for line in about if "seq" in line]
        assert told == ["operation_accepted", "operation_started", "operation_ended"]
