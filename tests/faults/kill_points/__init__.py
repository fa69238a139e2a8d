"""Lane `kill points`: SIGKILL at every file operation and every named point, and again in the recovery.

The scenes (`scenes`) together use all that effectd can do. Each is played once to count its places: the
calls about files below the state, runtime and backup folders, by kind, and the passings of each boundary of
`driver.faults`. Then battle after battle is fought in it: a life is killed at one of these places, the next
in its recovery, some more in the recoveries of that, and a last one lives. In the end (`truth`) nothing has
happened twice, all that was accepted has one receipt, which comes again in the same bytes and is no lie, the
journal is sound, nothing hung, and no process is left.

A kill counts as fired where the process died of SIGKILL and nobody but the blow sent it. `python -m
tests.faults.kill_points SCENE BLOW…` fights one battle again.
"""

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

from tests.faults.kill_points.battle import SECOND_CRASH, THIRD_CRASH, Tally
from tests.faults.kill_points.scenes import SCENES
from tests.faults.kill_points.worker import CONTROLS, KINDS, Asked, work
from tests.faults.lane import MEASURES, Report

NAME: Final = "kill points"
WORKERS: Final = 2
WANTED: Final = frozenset(
    {
        *KINDS, SECOND_CRASH, THIRD_CRASH, "redelivery", "receipt repeated", "receipt left to a later life",
        "operation.unknown/crash_window", "operation.unknown/connection_lost",
    }
)  # fmt: skip


def run(seed: int, seconds: float, points: int) -> Report:
    """Fight for so many seconds, or until so many kills were tried."""
    scenes = [scene.name for scene in SCENES]
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        works = [
            pool.submit(
                work,
                Asked(
                    scenes=scenes[number::WORKERS],
                    seed=seed,
                    seconds=seconds,
                    points=points // WORKERS,
                    controls=number == 0,
                ),
            )
            for number in range(WORKERS)
        ]
        total = Tally()
        for each in works:
            total.add(each.result())
    return _report(seed, total)


def _report(seed: int, total: Tally) -> Report:
    caught = Counter({f"caught: {name}": len(broken) for name, broken in total.controls.items()})
    wanted = {name for scene in SCENES for name in scene.reached}
    return Report(
        name=NAME,
        seed=seed,
        points=total.tried,
        tried=(
            f"{total.tried:,} kills tried, {total.fired.total():,} fired, in {total.lives:,} lives and "
            f"{total.battles:,} battles; the slowest took {total.slowest_s:.1f} s"
        ),
        fired=total.fired,
        reached=total.reached + caught,
        wanted=WANTED | wanted | {f"caught: {each.name}" for each in CONTROLS},
        figures={**dict.fromkeys(MEASURES, 0), **total.figures},
        broken=total.broken,
        notes=[
            f"{len(SCENES)} scenes have {total.places.total():,} places where a life can be killed",
            *(
                f"control, {name}: {(found or ['NOTHING'])[0][:200]}"
                for name, found in total.controls.items()
            ),
        ],
    )
