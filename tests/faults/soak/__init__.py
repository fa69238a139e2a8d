"""Lane `soak`: daemons under load for minutes or an hour, and nothing may grow.

Two sandboxes with providers of all kinds, each with a plane of its own. One daemon lives through all of it,
while its connections are cut, its plane restarts and its servers are killed; at each quiet moment between two
rounds of calls its descriptors, threads, memory, children, `-wal` and files are looked at. The other one is
killed and stopped again and again; what lies in its folders is looked at wherever a life has got everything
done. Retention runs in both. `trend` says what flat means.

In the end nothing has happened twice, every command has one receipt, none is a lie, nothing hung, no process
is left. A control lets a daemon leak a descriptor with each call: the same measure must find it.
"""

import random
import resource
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeAlias

import anyio
from anyio import to_thread

from store.settings import JournalSettings
from store.verify import verify_file
from tests.faults.kill_points.battle import leaves
from tests.faults.kill_points.stage import Hung, Stage, stage
from tests.faults.kill_points.truth import OTHER, Broken, audit, left_over
from tests.faults.lane import HANGS, MEASURES, Report, Time
from tests.faults.soak.load import ERASED, Load, tables
from tests.faults.soak.trend import growing, thirds
from tests.faults.soak.weather import Diary, end, sample, steady, stormy
from tests.system.zygote import Zygote

NAME: Final = "soak"
NOT_FLAT: Final = "figures that are not flat"
CONTROL_ROUNDS: Final = 12
LEAK: Final = "leaks_a_descriptor"
CAUGHT: Final = "caught: a descriptor leaked with each call"
WANTED: Final = frozenset(
    {
        "SIGKILL", "SIGTERM", "connection cut", "plane restarted", "server killed",
        "steady: flat", "stormy: flat",
        "operation.unknown/crash_window", "operation.unknown/connection_lost", "operation.probed",
        "operation.compensated", "operation.reconciled", "operation.approval_decided", "redelivery",
        "operation.not_executed/approval_denied", ERASED, CAUGHT,
    }
)  # fmt: skip


@dataclass(slots=True)
class Soaked:
    """One sandbox, when it is over."""

    name: str
    diary: Diary = field(default_factory=Diary)
    kinds: Counter[str] = field(default_factory=Counter[str])
    calls: int = 0
    effects: int = 0
    redeliveries: int = 0
    wrong: list[Broken] = field(default_factory=list[Broken])


Weather: TypeAlias = Callable[[Load, Diary, Time], Awaitable[None]]


def run(seed: int, seconds: float, points: int) -> Report:
    """Soak for so many seconds; `points` is no reason to end before."""
    del points
    return anyio.run(_run, seed, seconds)


async def _run(seed: int, seconds: float) -> Report:
    time = Time.of(seconds)
    zygote = Zygote()
    # a sandbox keeps a descriptor of each life until its end
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        made = [Soaked("steady"), Soaked("stormy")]
        leaking = Soaked("leaking")
        async with anyio.create_task_group() as tasks:
            for soaked, weather in zip(made, (steady, stormy), strict=True):
                tasks.start_soon(_soak, zygote, f"{seed} {soaked.name}", soaked, weather, time)
            tasks.start_soon(_soak, zygote, f"{seed} leaking", leaking, _leak, time)
        return _report(seed, made, leaking)
    finally:
        zygote.close()


async def _soak(zygote: Zygote, seed: str, soaked: Soaked, weather: Weather, time: Time) -> None:
    try:
        async with stage(zygote, tables) as here:
            load = Load(here, random.Random(seed))
            try:
                await weather(load, soaked.diary, time)
            except* AssertionError as group:
                soaked.wrong += [_broken(error) for error in leaves(group)]
            await _look(here, soaked)
            soaked.kinds, soaked.calls = load.kinds, load.calls
            soaked.effects, soaked.redeliveries = here.executions().total(), here.plane.redeliveries
            here.plane.violations.clear()
            for history in here.plane.histories.values():
                history.violations.clear()
    except* AssertionError as group:
        soaked.wrong += [_broken(error) for error in leaves(group)]
    soaked.wrong += [Broken(measure=NOT_FLAT, what=text) for text in growing(soaked.diary.samples)]


def _broken(error: AssertionError) -> Broken:
    return Broken(measure=HANGS if isinstance(error, Hung) else OTHER, what=str(error))


async def _look(here: Stage, soaked: Soaked) -> None:
    for life in here.made.lives:
        await life.kill()
    await here.made.quiet()
    soaked.wrong += await left_over(here.made.zygote.pid, here.made.root)
    soaked.wrong += audit(here.plane, here.executions())
    settings = JournalSettings(state_dir=here.made.state, runtime_dir=here.made.runtime)
    found = await to_thread.run_sync(
        lambda: verify_file(settings, lambda _: None, now=datetime.now(UTC), deep=True)
    )
    soaked.wrong += [Broken(measure=OTHER, what=str(each)) for each in found]
    soaked.wrong += [
        Broken(measure=OTHER, what=f"left behind after a clean stop: {path.name}")
        for path in here.made.state.glob("*-wal")
    ]


async def _leak(load: Load, diary: Diary, time: Time) -> None:
    """The control: some rounds, with a daemon that keeps a descriptor for each call."""
    del time
    life = load.stage.made.start(patch=LEAK)
    await load.stage.plane.connected()
    for _ in range(CONTROL_ROUNDS):
        await load.round()
        await sample(load.stage, life, diary)
    await end(load, life)


def _report(seed: int, made: list[Soaked], leaking: Soaked) -> Report:
    report = Report(name=NAME, seed=seed, tried="", wanted=WANTED, figures=dict.fromkeys(MEASURES, 0))
    report.figures[NOT_FLAT] = 0
    for soaked in made:
        report.fired += soaked.diary.fired
        report.reached += soaked.kinds
        report.reached["redelivery"] += soaked.redeliveries
        medians = thirds(soaked.diary.samples)
        report.reached[f"{soaked.name}: flat"] += bool(medians) and not growing(soaked.diary.samples)
        for broken in soaked.wrong:
            report.figures[broken.measure] = report.figures.get(broken.measure, 0) + 1
            report.broken.append(f"{soaked.name}, seed {seed}: {str(broken)[:1500]}")
        shown = ", ".join(f"{name} {early:g} → {late:g}" for name, (early, late) in medians.items())
        report.notes.append(f"{soaked.name}, {len(soaked.diary.samples)} looks: {shown or 'too few'}")
    report.reached[CAUGHT] += any("descriptors" in text for text in growing(leaking.diary.samples))
    others = [str(broken) for broken in leaking.wrong if broken.measure != NOT_FLAT]
    report.broken += [f"leaking, seed {seed}: {text[:1500]}" for text in others]
    report.notes.append(f"control: {(growing(leaking.diary.samples) or ['NOTHING'])[0]}")
    report.points = sum(soaked.calls for soaked in made)
    report.tried = (
        f"{report.points:,} calls with {sum(soaked.effects for soaked in made):,} effects in "
        f"{sum(soaked.diary.lives for soaked in made):,} lives, "
        f"{sum(soaked.diary.statuses for soaked in made):,} status reads"
    )
    return report
