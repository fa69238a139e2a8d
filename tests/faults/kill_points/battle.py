"""One battle: lives of a scene, each killed at a place of its own, then a calm one, and the look at it all.

Part of `kill points`. The first blow falls anywhere in the scene, the others in the recoveries that follow.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Final

from anyio import to_thread

from store.errors import StoreError
from store.settings import JournalSettings
from store.verify import verify_file
from tests.faults.kill_points.blows import Blow, NamedBlow, Points, kind_of
from tests.faults.kill_points.scenes import Scene
from tests.faults.kill_points.stage import KILLED, Hung, Stage, Template, stage
from tests.faults.kill_points.truth import OTHER, Broken, audit, left_over
from tests.faults.lane import HANGS
from tests.system.plane import ScriptedPlane
from tests.system.zygote import Zygote

SECOND_CRASH: Final = "second crash"
THIRD_CRASH: Final = "third crash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A scene that can be played: how it begins, and where its lives can be killed."""

    scene: Scene
    template: Template
    points: Points


@dataclass(slots=True)
class Tally:
    """What battles came to."""

    battles: int = 0
    lives: int = 0
    tried: int = 0
    """Blows."""
    fired: Counter[str] = field(default_factory=Counter[str])
    reached: Counter[str] = field(default_factory=Counter[str])
    figures: Counter[str] = field(default_factory=Counter[str])
    places: Counter[str] = field(default_factory=Counter[str])
    """Where the lives of the scenes can be killed, by kind."""
    controls: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """What was found where a mechanism is missing, by the controls' names."""
    broken: list[str] = field(default_factory=list[str])
    slowest_s: float = 0.0

    def add(self, other: "Tally") -> None:
        """Count what another one has counted, too."""
        self.battles += other.battles
        self.lives += other.lives
        self.tried += other.tried
        self.fired += other.fired
        self.reached += other.reached
        self.figures += other.figures
        self.places += other.places
        self.controls |= other.controls
        self.broken += other.broken
        self.slowest_s = max(self.slowest_s, other.slowest_s)


async def prepare(zygote: Zygote, scene: Scene) -> Ready:
    """Make a scene's beginning, and count where a life of it can be killed, in one that is not."""
    async with stage(zygote, scene.tables) as here:
        if scene.before is not None:
            await scene.before(here)
        template = here.template()
    async with stage(zygote, scene.tables) as here:
        here.take(template)
        points, _ = await here.count(scene.act)
    return Ready(scene=scene, template=template, points=points)


async def recovery(zygote: Zygote, ready: Ready) -> Points:
    """Count where a life can be killed before its hello, when the one before it died in mid-scene."""
    middle = NamedBlow(boundary="dispatch.answered", passing=1)
    async with stage(zygote, ready.scene.tables) as here:
        here.take(ready.template)
        life = await here.live(ready.scene.act, middle)
        assert life.code == KILLED, f"{ready.scene.name}: {middle} was not reached: {life.text[-2000:]}"
        _, points = await here.count(ready.scene.act)
    return points


@dataclass(frozen=True, slots=True, kw_only=True)
class Weakness:
    """A mechanism that one of the lives lacks, for the negative controls."""

    patch: str
    life: int
    """From 0."""
    patience_s: float = 3.0


async def fight(
    zygote: Zygote,
    ready: Ready,
    blows: Sequence[Blow],
    *,
    strictly: bool = False,
    weakness: Weakness | None = None,
) -> Tally:
    """Play a scene, and strike; return what came of it. `strictly` holds each frame against the schema."""
    began, tally = monotonic(), Tally(battles=1)
    wrong: list[Broken] = []
    try:
        async with stage(zygote, ready.scene.tables) as here:
            here.plane.validates = strictly
            here.take(ready.template)
            if weakness is not None:
                here.patience_s = weakness.patience_s
            try:
                await _strike(here, ready.scene, blows, tally, weakness)
                await _end(here, ready.scene)
            except* AssertionError as group:
                wrong += [_broken(error) for error in leaves(group)]
            await _look(here, ready.scene, wrong)
            _count(here, tally)
            _forget(here.plane)
    except* AssertionError as group:
        wrong += [_broken(error) for error in leaves(group)]
    for broken in wrong:
        tally.figures[broken.measure] += 1
    tally.slowest_s = monotonic() - began
    if wrong:
        place = " ".join((repr(ready.scene.name), *map(str, blows)))
        tally.broken.append(f"{place}: {'; '.join(str(each)[:1500] for each in wrong)}")
    return tally


def leaves(group: BaseExceptionGroup[AssertionError]) -> Iterator[AssertionError]:
    """Yield what went wrong, out of the groups around it."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


def _broken(error: AssertionError) -> Broken:
    return Broken(measure=HANGS if isinstance(error, Hung) else OTHER, what=str(error))


def _forget(plane: ScriptedPlane) -> None:
    """What was broken is reported, and need not be raised once more at the end."""
    plane.violations.clear()
    plane.errors.clear()
    for history in plane.histories.values():
        history.violations.clear()


async def _strike(
    here: Stage, scene: Scene, blows: Sequence[Blow], tally: Tally, weakness: Weakness | None
) -> None:
    for index, blow in enumerate(blows):
        is_weak = weakness is not None and index == weakness.life
        life = await here.live(scene.act, blow, patch=weakness.patch if weakness and is_weak else None)
        tally.tried += 1
        if life.code != KILLED:
            assert life.code == 0, f"exit code {life.code}: {life.text[-2000:]}"
            return
        tally.fired[kind_of(blow)] += 1
        if index:
            tally.reached[SECOND_CRASH if index == 1 else THIRD_CRASH] += 1


async def _end(here: Stage, scene: Scene) -> None:
    """Let one life live: all is answered, and the same again when it is delivered again."""

    async def all_again(here: Stage) -> None:
        await scene.act(here)
        await here.plane.answered()
        await _redelivered(here, scene)

    life = await here.live(all_again)
    assert life.code == 0, f"exit code {life.code} in the end: {life.text[-2000:]}"


async def _redelivered(here: Stage, scene: Scene) -> None:
    plane, history = here.plane, here.plane.history
    names = [name for name in plane.orders if name in history.receipts]
    seen = {name: _heard(plane, name) for name in names}
    for name in names:
        await plane.deliver(name)
    await plane.until(lambda: all(_heard(plane, name) > seen[name] for name in names))
    for name in names:
        told = plane.orders[name].answers
        if told and told[-1]["type"] == "retired" and not scene.retires:
            raise AssertionError(f"{name} was retired: {told[-1]}")
    here.facts |= {"receipt repeated"} if names else set()


def _heard(plane: ScriptedPlane, name: str) -> int:
    history = plane.history
    return plane.repeats[history.journal_id, history.receipts[name]] + len(plane.orders[name].answers)


async def _look(here: Stage, scene: Scene, wrong: list[Broken]) -> None:
    for life in here.made.lives:
        await life.kill()
    await here.made.quiet()
    wrong += await left_over(here.made.zygote.pid, here.made.root)
    unsound = [*await to_thread.run_sync(_unsound, here), *await to_thread.run_sync(scene.amiss, here)]
    wrong += [Broken(measure=OTHER, what=text) for text in unsound if text not in scene.known]
    wrong += list(audit(here.plane, here.executions()))


def _unsound(here: Stage) -> list[str]:
    settings = JournalSettings(state_dir=here.made.state, runtime_dir=here.made.runtime)
    try:
        return [
            str(found) for found in verify_file(settings, lambda _: None, now=datetime.now(UTC), deep=True)
        ]
    except StoreError as error:
        return [f"the journal cannot be opened: {error}"]


def _count(here: Stage, tally: Tally) -> None:
    plane = here.plane
    tally.lives += len(here.made.lives)
    tally.reached.update(here.facts)
    tally.reached["redelivery"] += plane.redeliveries
    tally.reached["receipt left to a later life"] += plane.inherited_receipts
    tally.reached["effects"] += here.executions().total()
    for history in plane.histories.values():
        for event in history.events():
            reason = event["data"].get("reason") if event["kind"] == "operation.unknown" else None
            tally.reached[event["kind"] + (f"/{reason}" if reason else "")] += 1
