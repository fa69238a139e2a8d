"""One world from its seed to what it came to: its loop, its folder, and whether it was judged at all."""

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path

from tests.faults.simulation.files import copy_folder, remove_folder
from tests.faults.simulation.loop import Deadlock, NeverAtRest, VirtualLoop, begin_numbering
from tests.faults.simulation.themes import Theme
from tests.faults.simulation.truth import JUDGED, Say, Truth
from tests.faults.simulation.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one seed came to."""

    seed: int
    trace: str
    steps: int
    lives: int
    virtual_s: float
    truth: Truth


def play(
    seed: int,
    template: Path,
    folder: Path,
    *,
    deep: bool = False,
    theme: Theme | None = None,
    say: Say | None = None,
) -> Outcome:
    """Let the world of `seed` live, in `folder`, from a journal as in `template`.

    `theme` is what it is about, where the seed does not decide that; `say` hears its trace.
    """
    copy_folder(template, folder)
    begin_numbering()
    random.seed(seed)
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    world = World(seed, folder, theme, say)
    try:
        loop.run_until_complete(world.play())
    except (Deadlock, NeverAtRest) as hang:
        world.truth.blame("hang", str(hang))
    finally:
        world.close()
        loop.abandon()
        asyncio.set_event_loop(None)
    world.truth.broken += [f"nobody caught {text}" for text in loop.unhandled]
    if not (world.truth.broken or world.truth.reached[JUDGED]):
        world.truth.blame("simulation", "nobody has judged it by its records")
    if deep and not world.truth.broken:
        world.verify()
    remove_folder(folder)
    return Outcome(
        seed=seed,
        trace=world.truth.trace,
        steps=loop.steps,
        lives=len(world.lives),
        virtual_s=loop.time(),
        truth=world.truth,
    )
