"""The simulation itself: time that passes at once, processes that die between steps, worlds that repeat."""

import asyncio
import multiprocessing
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext, redirect_stdout
from contextvars import copy_context
from io import StringIO
from typing import Any, Final

import pytest

from driver.engine.intake import Intake
from store.journal import Journal
from store.records import StoredEvent
from tests.faults.simulation.batch import main, play_control, play_many, workers
from tests.faults.simulation.controls import CONTROLS, swapped
from tests.faults.simulation.lane import NAME, run
from tests.faults.simulation.life import Life
from tests.faults.simulation.loop import PROCESS, Deadlock, Process, VirtualLoop
from tests.faults.simulation.plane import BOTH_LIVE, Plane
from tests.faults.simulation.rivals import KEPT
from tests.faults.simulation.themes import TWO_DAEMONS
from tests.faults.simulation.truth import JUDGED
from tests.faults.simulation.world import AFTER_STOP, World

SEEDS = range(4_000, 4_012)
LATE: Final[dict[str, Any]] = {
    "command_id": "late",
    "run_id": "run-late",
    "kind": "tool.call",
    "data": {"tool": "tools/plain", "arguments": {"n": -2}},
}


def lived(main: Callable[[], Awaitable[None]]) -> VirtualLoop:
    """Run something in virtual time."""
    loop = VirtualLoop()

    async def whole() -> None:
        await main()

    try:
        loop.run_until_complete(whole())
    finally:
        loop.abandon()
    return loop


def test_an_hour_passes_at_once() -> None:
    """Where nothing is ready, the clock is set to the next timer."""

    async def main() -> None:
        await asyncio.sleep(3_600)

    assert lived(main).time() == 3_600


def test_who_waits_for_nothing_is_found() -> None:
    """A world in which nothing will ever happen is an error, and no hang."""

    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        lived(main)


def test_a_process_dies_between_two_steps_and_cleans_nothing_up() -> None:
    """What it would have done next is not done, a `finally` included; the world goes on."""
    done: list[str] = []
    process = Process("doomed")
    process.dies_at = 3  # its first, the timer that wakes it, its second
    process.on_death = lambda: done.append("dead")

    async def doomed() -> None:
        try:
            for number in range(5):
                done.append(str(number))
                await asyncio.sleep(1)
        finally:
            done.append("cleaned up")

    async def main() -> None:
        context = copy_context()
        context.run(PROCESS.set, process)
        task = asyncio.get_running_loop().create_task(doomed(), context=context)
        await asyncio.sleep(10)
        assert not task.done()
        assert done == ["0", "1", "dead"]

    lived(main)


def test_a_world_is_the_same_each_time() -> None:
    """Two processes that play the same worlds in another order come to the same traces; all holds."""
    with workers(2) as pool:
        once = pool.submit(play_many, list(SEEDS))
        again = pool.submit(play_many, list(reversed(SEEDS)))
        first, second = once.result(), again.result()
    assert first.broken == []
    assert first.traces == second.traces
    assert len(set(first.traces.values())) == len(SEEDS)


def play_asked_late(seed: int, *, forgetful: bool) -> list[str]:
    """Play a world in which somebody wants a call after all has come to rest. Return what broke. In a worker.

    `forgetful`: the daemon accepts it, and never comes back to it.
    """
    ask_at_once, follow_all, wanted = Life.ask, Intake._follow_all, str(LATE["command_id"])
    forgets: list[bool] = []

    async def ask(self: Life, question: Callable[[Journal], Awaitable[Any]]) -> object:
        plane, journal, accepted = self.around.network.plane, self.journal, asyncio.Event()
        assert isinstance(plane, Plane), "there is one plane"
        assert journal is not None, "it was opened"

        def hear(events: Sequence[StoredEvent]) -> None:
            if any(event.command_id == wanted for event in events):
                accepted.set()

        if wanted not in plane.orders:
            if forgetful:
                forgets.append(True)
            journal.subscribe(hear)
            plane.give(LATE)
            await accepted.wait()
        return await ask_at_once(self, question)

    def follow(self: Intake, taken: Sequence[Any]) -> None:
        if not forgets:
            follow_all(self, taken)

    with swapped(Life, "ask", ask), swapped(Intake, "_follow_all", follow):
        return play_many([seed]).broken


def test_who_wants_something_before_a_world_is_judged_is_waited_for() -> None:
    """What a daemon has only just accepted has not ended yet, and that is no broken promise."""
    with workers(1) as pool:
        for seed in SEEDS[:4]:
            assert pool.submit(play_asked_late, seed, forgetful=False).result() == [], seed


def test_a_daemon_that_forgets_what_it_has_accepted_is_found_out_to_the_end() -> None:
    """However late it was wanted, each command has its receipt, and each operation its end."""
    with workers(1) as pool:
        for seed in SEEDS[:4]:
            broken = pool.submit(play_asked_late, seed, forgetful=True).result()
            assert any("I4: no receipt" in text for text in broken), seed
            assert any("it has not ended" in text for text in broken), seed


def test_every_world_is_judged_by_its_records() -> None:
    """Where the daemon was stopped, and nothing is left to do, it is the next life that is asked."""
    with workers(1) as pool:
        found = pool.submit(play_many, range(4_000, 4_060)).result()
    assert found.broken == []
    assert found.reached[JUDGED] == found.worlds == 60
    assert found.reached[AFTER_STOP] > 0


def play_unjudged(seed: int) -> list[str]:
    """Play a world at whose end nobody looks at the journal. Return what broke. In a worker."""

    async def look_away(self: World) -> None:
        del self

    with swapped(World, "_be_judged", look_away):
        return play_many([seed]).broken


def test_a_world_that_nobody_has_judged_does_not_count_as_one_that_holds() -> None:
    """What was not looked at is no proof."""
    with workers(1) as pool:
        broken = pool.submit(play_unjudged, SEEDS[0]).result()
    assert [text for text in broken if "nobody has judged it" in text] == broken != []


def test_a_daemon_that_deduplicates_in_memory_is_found_out() -> None:
    """A control of the lane: what only a process remembers is executed again after its death."""
    with workers(1) as pool:
        found = pool.submit(play_control, "dedupe in memory", 4_000).result()
    assert any("I2: " in text for text in found.broken)


def test_two_daemons_live_at_once_and_one_of_them_acts() -> None:
    """The plane cannot tell the clone from its original: the older one is fenced, and all holds."""
    with workers(1) as pool:
        found = pool.submit(play_many, list(SEEDS), theme=TWO_DAEMONS).result()
    assert found.broken == []
    assert found.reached[BOTH_LIVE] >= found.reached["fence, superseded"] > 0
    assert found.reached[KEPT] > 0


def test_two_daemons_without_what_keeps_them_apart_are_found_out() -> None:
    """Controls of the lane: a fence, the look at the plane's history and the lock are each held to."""
    with workers(1) as pool:
        for control in (
            "4001 is a close like any other",
            "another history is no matter",
            "a folder without a lock",
        ):
            found = pool.submit(play_control, control, 4_000).result()
            assert CONTROLS[control].noticed(found.broken), control


@pytest.mark.parametrize("control", CONTROLS)
def test_a_mechanism_that_is_missing_is_noticed_by_what_that_does(control: str) -> None:
    """A daemon that falls over because it cannot be taken away any more has shown nothing."""
    fell = [
        "world 1: the daemon fell over: AttributeError()",
        "world 1: I4: no receipt in 1200 s for ['cmd-1']",
    ]
    assert CONTROLS[control].noticed(fell) == []


def replayed(control: str | None, *arguments: str) -> tuple[int, str]:
    """Play worlds as a person does, with or without a mechanism; in a process of its own."""
    said = StringIO()
    weakened = nullcontext() if control is None else CONTROLS[control].weaken()
    with weakened, redirect_stdout(said):
        code = main(arguments)
    return code, said.getvalue()


def test_a_replay_tells_what_happened_and_fails_where_it_broke() -> None:
    """The lines of a person's replay and the digest of a machine's are of the same world."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        code, told = pool.submit(replayed, None, "4000").result()
        brief_code, brief = pool.submit(replayed, None, "--brief", "4000").result()
        broken_code, broken = pool.submit(replayed, "intent after effect", "--brief", "4000").result()
    assert (code, brief_code, broken_code) == (0, 0, 1)
    *trace, digest = told.splitlines()
    assert brief.splitlines() == [digest]
    assert any(" gives " in line for line in trace)
    assert "BROKEN world 4000: I1: " in broken


def test_a_run_plays_so_many_worlds_and_its_controls() -> None:
    """The lane counts what it played, plays some again, and notices each mechanism that is taken away."""
    report = run(2, 0.0, 40)
    assert report.name == NAME
    assert report.broken == []
    assert [name for name in report.missed if name.startswith("caught: ")] == []
