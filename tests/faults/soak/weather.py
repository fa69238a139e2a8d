"""What befalls daemons during a soak: one lives through all of it, one is killed again and again.

Part of `soak`.
"""

import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from tests.faults.kill_points.stage import Hung, Stage
from tests.faults.lane import Time
from tests.faults.soak.gauge import Sample, descendants, measure
from tests.faults.soak.load import HANG_S, Load
from tests.faults.soak.trend import thirds
from tests.system.sandbox import Life

PAUSE_S: Final = 0.3
"""Between two rounds: the lane is to keep about one processor busy, with all of its daemons."""
OUTAGE_S: Final = 0.2
STATUS_S: Final = 0.5
CALM: Final = 0.3
"""Of the lives that are killed, so many get to the end of what was asked first."""
LIFE_S: Final = 0.8
KEPT: Final = 3


@dataclass(slots=True)
class Diary:
    """What befell a sandbox, and what its daemons held at the quiet moments."""

    fired: Counter[str] = field(default_factory=Counter[str])
    samples: list[Sample] = field(default_factory=list[Sample])
    statuses: int = 0
    lives: int = 0

    def lacks(self, *blows: str) -> bool:
        """Whether the looks are too few to say that nothing grows, or one of these has never befallen it."""
        return not thirds(self.samples) or not all(self.fired[blow] for blow in blows)


async def sample(stage: Stage, life: Life, diary: Diary) -> None:
    """Look at a daemon of which nothing is asked at this moment."""
    made = stage.made
    diary.samples.append(await to_thread.run_sync(measure, life.pid, made.state, made.runtime))


async def steady(load: Load, diary: Diary, time: Time) -> None:
    """One life, round after round, whose connections, plane and servers fail."""
    stage, chance = load.stage, load.chance
    life = await stage.made.execute()
    diary.lives += 1
    await stage.plane.connected()
    blows: Sequence[Callable[[], Awaitable[None]]] = (
        partial(_cut, stage, diary),
        partial(_restart, stage, diary),
        partial(_kill_server, life, diary),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_ask_for_status, stage, life, diary)
        while time.is_left(is_missing=diary.lacks("connection cut", "plane restarted", "server killed")):
            async with anyio.create_task_group() as turn:
                turn.start_soon(load.round)
                if chance.random() < 0.5:
                    turn.start_soon(_after, chance.uniform(0, 0.1), chance.choice(blows))
            await sample(stage, life, diary)
            await anyio.sleep(PAUSE_S)
        tasks.cancel_scope.cancel()
    await end(load, life)


async def stormy(load: Load, diary: Diary, time: Time) -> None:
    """Life after life, killed at any moment or told to stop; some of them get everything done before."""
    stage, chance = load.stage, load.chance
    while time.is_left(is_missing=diary.lacks("SIGKILL", "SIGTERM")):
        hellos = len(stage.plane.hellos)
        life = stage.made.start()
        diary.lives += 1
        if chance.random() < CALM:
            await _welcomed(stage, hellos)
            await load.round()
            # on a busy machine short lives prune little: one that is looked at has gone through all of it
            await life.told("pruned")
            await sample(stage, life, diary)
        else:
            await load.give()
            await anyio.sleep(chance.uniform(0, LIFE_S))
        await _strike(life, chance, diary)
        _forget(stage)
        await anyio.sleep(PAUSE_S)
    hellos = len(stage.plane.hellos)
    life = stage.made.start()
    await _welcomed(stage, hellos)
    await load.finish()
    await end(load, life)


async def _welcomed(stage: Stage, hellos: int) -> None:
    with anyio.move_on_after(HANG_S):
        await stage.plane.until(lambda: len(stage.plane.hellos) > hellos)
        return
    raise Hung(f"no hello for {HANG_S:g} s: {stage.made.lives[-1].text[-2000:]}")


async def _strike(life: Life, chance: random.Random, diary: Diary) -> None:
    number = chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
    diary.fired[number.name] += 1
    life.send(number)
    await _over(life)
    assert life.code in (0, -number), f"exit code {life.code}: {life.text[-2000:]}"


async def _over(life: Life) -> None:
    with anyio.move_on_after(HANG_S):
        await life.ended.wait()
        return
    await life.kill()
    raise Hung(f"it does not end within {HANG_S:g} s: {life.text[-2000:]}")


def _forget(stage: Stage) -> None:
    """A soak has thousands of lives: what those wrote that ended a while ago is not kept."""
    for number, life in enumerate(stage.made.lives[-KEPT - 1 : -KEPT], len(stage.made.lives) - KEPT - 1):
        life.output.unlink()
        (stage.made.root / f"notify-{number}").unlink()


async def end(load: Load, life: Life) -> None:
    """Let everything come to its end, and the daemon stop. Raises `Hung` and AssertionError."""
    await load.finish()
    life.send(signal.SIGTERM)
    await _over(life)
    assert life.code == 0, f"exit code {life.code}: {life.text[-2000:]}"


# ------------------------------------------------------------ what befalls the steady one


async def _after(delay_s: float, blow: Callable[[], Awaitable[None]]) -> None:
    await anyio.sleep(delay_s)
    await blow()


async def _cut(stage: Stage, diary: Diary) -> None:
    stage.plane.cut()
    diary.fired["connection cut"] += 1


async def _restart(stage: Stage, diary: Diary) -> None:
    stage.plane.answer_status = 503
    if stage.plane.link is not None:
        await stage.plane.close(1012)
    await anyio.sleep(OUTAGE_S)
    stage.plane.answer_status = None
    diary.fired["plane restarted"] += 1


async def _kill_server(life: Life, diary: Diary) -> None:
    diary.fired["server killed"] += await to_thread.run_sync(_killed_servers, life.pid)


def _killed_servers(pid: int) -> int:
    killed = 0
    for child in list(descendants(pid)):
        with suppress(OSError):
            if b"counter_mcp" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, signal.SIGKILL)
                killed += 1
    return killed


async def _ask_for_status(stage: Stage, life: Life, diary: Diary) -> None:
    while True:
        with anyio.move_on_after(HANG_S) as patience:
            await stage.made.status()
            diary.statuses += 1
        if patience.cancelled_caught:
            raise Hung(f"no status for {HANG_S:g} s: {life.text[-2000:]}")
        await anyio.sleep(STATUS_S)
