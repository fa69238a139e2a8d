"""What happens in each case of the battery.

Part of `driver.conformance`. A case is a function that gets a `Stage` (a world of its own, and subjects on
one state folder), and returns what it saw. `CASES` is the list, in the order in which they are told.

Each case says of itself whether it was `exercised`, and takes that from what was seen, never from what it
asked for: from the world's ledger, that the fault fired there, and from the subject, that it was in the
middle of the call when it was killed or asked again. A case that was not exercised proves nothing.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio

from driver.conformance.adapter import About, Subject, subject
from driver.conformance.errors import AdapterEnded, AdapterSilent
from driver.conformance.ledger import World
from driver.conformance.verdict import Answer, Harm, Outcome, Seen, harms, key_harms
from driver.conformance.world import LATE_S, SEARCH

END_S: Final = 20.0
"""How long a command may take to its end, its deadline of two seconds, retries and backoff included."""
REACH_S: Final = 20.0
"""How long a call may take to reach the world."""
SEARCH_S: Final = 8.0
"""How long is waited for a subject that looks, after silence, whether something happened."""
SETTLE_S: Final = 1.0
"""How long a further call is waited for, where there must be none; and the noise of an answer that leaves."""
CASE_S: Final = 120.0
"""The end of every case, whatever the subject does: longer than all of its waits together."""
ITEM: Final = "item-1"
OTHER: Final = "item-2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a case plays on."""

    argv: Sequence[str]
    world: World
    state: Path
    met: list[About]
    """Whom the adapter named."""

    @asynccontextmanager
    async def life(self) -> AsyncGenerator[Subject]:
        """One life of the subject, on the state that earlier ones left; killed at its end."""
        async with subject(self.argv) as alive:
            await alive.start(self.state, self.world.folder)
            self.met.append(alive.about)
            yield alive

    async def seen(self, alive: Subject, *, disturbed: bool = False, command_id: str = "command-1") -> Seen:
        """Wait for a command's end, and return what was told beside what happened to `ITEM`."""
        told = await alive.outcome(command_id, END_S)
        return Seen(
            told=told,
            effects=self.world.effects(ITEM),
            answer=self.world.answer(ITEM),
            learned=self.learned(ITEM),
            disturbed=disturbed,
        )

    def learned(self, item: str) -> bool:
        """Whether the search has told the subject of an item, or an answer after the deadline has."""
        found = any(entry.way == "honest" and entry.said for entry in self.world.searches(item))
        return found or self.world.went(item, "late", said=1)

    async def again(self, alive: Subject, tool: str = "charge", *, disturbed: bool = False) -> Seen:
        """Deliver the command once more, and return what is told then, with every effect that follows."""
        await alive.deliver("command-1", ITEM, tool)
        seen = await self.seen(alive, disturbed=disturbed)
        await self.still(len(self.keys))
        return replace(seen, effects=self.world.effects(ITEM), learned=self.learned(ITEM))

    async def still(self, count: int) -> None:
        """Give calls that must not come the time to come: beyond `count` of `ITEM`."""
        await self.world.until(lambda world: len(world.entries(ITEM)) > count, SETTLE_S)

    @property
    def keys(self) -> list[str | None]:
        """The keys of all calls of `ITEM`."""
        return [entry.key for entry in self.world.entries(ITEM)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a case came to."""

    harms: frozenset[Harm]
    told: Outcome
    effects: int
    calls: int
    exercised: bool
    """False where what the case is about never happened: it proves nothing then."""


Case = Callable[[Stage], Awaitable[Found]]


def _found(stage: Stage, seen: Seen, more: frozenset[Harm] = frozenset(), *, exercised: bool) -> Found:
    return Found(
        harms=harms(seen) | more,
        told=seen.told,
        effects=seen.effects,
        calls=len(stage.keys),
        exercised=exercised,
    )


async def _running(alive: Subject) -> bool:
    """Whether the subject lives, and has not told the command's end yet."""
    return alive.lives and await alive.outcome("command-1", 0) is Outcome.RUNNING


async def _once(stage: Stage, way: str) -> Found:
    """Play one command to its end, deliver it again, and look for a second effect."""
    stage.world.goes(charge=way)
    async with stage.life() as alive:
        await alive.deliver("command-1", ITEM)
        await alive.outcome("command-1", END_S)
        return _found(stage, await stage.again(alive), exercised=stage.world.went(ITEM, way))


async def honest(stage: Stage) -> Found:
    """The tool works and answers: the caller is told so, and there is one effect."""
    found = await _once(stage, "honest")
    lost = frozenset({Harm.LOST_EFFECT}) if not found.effects else frozenset[Harm]()
    return replace(found, harms=found.harms | lost)


async def timeout_after_commit(stage: Stage) -> Found:
    """The effect happens, and no answer ever comes: nobody may call that a failure, or do it again."""
    return await _once(stage, "silent")


async def error_after_commit(stage: Stage) -> Found:
    """The effect happens, and the tool answers with an error: an error is no proof that nothing happened."""
    return await _once(stage, "error")


async def duplicate_answer(stage: Stage) -> Found:
    """The tool answers twice: the second answer is not the next call's."""
    stage.world.goes(charge="twice")
    async with stage.life() as alive:
        await alive.deliver("command-1", ITEM)
        seen = await stage.seen(alive)
        stage.world.goes(charge="silent")
        await alive.deliver("command-2", OTHER)
        other = await alive.outcome("command-2", END_S)
        twice = await stage.world.until(lambda world: world.went(ITEM, "twice", said=2), SETTLE_S)
        unanswered = stage.world.answer(OTHER) is Answer.NONE and not stage.learned(OTHER)
        stolen = other is Outcome.SUCCEEDED and unanswered
        return _found(
            stage,
            seen,
            frozenset({Harm.FALSE_SUCCESS}) if stolen else frozenset(),
            exercised=twice and stage.world.went(OTHER, "silent"),
        )


async def slow_answer(stage: Stage) -> Found:
    """The answer comes after the deadline: until then nobody knows, and afterwards nobody does it again."""
    stage.world.goes(charge="late")
    async with stage.life() as alive:
        await alive.deliver("command-1", ITEM)
        first = await stage.seen(alive)
        came = await stage.world.until(lambda world: world.went(ITEM, "late", said=1), LATE_S + SETTLE_S)
        return _found(stage, await stage.again(alive), harms(first), exercised=came)


async def unavailable_verification(stage: Stage) -> Found:
    """No answer, and the search that could tell is down: what cannot be looked up is not absent."""
    stage.world.goes(charge="silent", **{SEARCH: "error"})
    async with stage.life() as alive:
        await alive.deliver("command-1", ITEM)
        first = await stage.seen(alive)
        asked = await stage.world.until(
            lambda world: any(entry.way == "error" and entry.said for entry in world.searches(ITEM)), SEARCH_S
        )
        return _found(
            stage,
            await stage.again(alive),
            harms(first),
            exercised=asked and stage.world.went(ITEM, "silent"),
        )


async def declared_safe(stage: Stage) -> Found:
    """A tool that deduplicates dies before its effect: another attempt is welcome, with the same key."""
    return await _keyed(stage, "dies-before")


async def key_stability(stage: Stage) -> Found:
    """The same tool has its effect, and never answers: who tries again without the same key does it twice."""
    return await _keyed(stage, "silent")


async def _keyed(stage: Stage, way: str) -> Found:
    stage.world.goes(charge_once=f"first-{way}")
    async with stage.life() as alive:
        await alive.deliver("command-1", ITEM, "charge_once")
        await alive.outcome("command-1", END_S)
        seen = await stage.again(alive, "charge_once")
        tried = stage.world.went(ITEM, way) and len(stage.keys) > 1
        return _found(stage, seen, key_harms(stage.keys), exercised=tried)


async def key_distinctness(stage: Stage) -> Found:
    """Two commands are two, even where they ask for the same: of one key the tool has one effect."""
    async with stage.life() as alive:
        await alive.deliver("command-1", ITEM, "charge_once")
        seen = await stage.seen(alive)
        first = stage.keys
        await alive.deliver("command-2", OTHER, "charge_once")
        await alive.outcome("command-2", END_S)
        await alive.deliver("command-3", ITEM, "charge_once")
        await alive.outcome("command-3", END_S)
        others, same = [entry.key for entry in stage.world.entries(OTHER)], stage.keys[len(first) :]
        shared = {*first} & {*others, *same} | {*others} & {*same}
        more = {Harm.SHARED_KEY} if shared - {None} else set[Harm]()
        # nothing stood in the way of the others, either
        is_done = stage.world.effects(OTHER) and stage.world.effects(ITEM) > seen.effects
        more |= set[Harm]() if is_done else {Harm.LOST_EFFECT}
        keyed = all((first, others, same, *first, *others, *same))
        return _found(stage, seen, frozenset(more), exercised=keyed)


async def kill_after_effect(stage: Stage) -> Found:
    """The runtime is killed between the effect and its answer, and asked again after its restart."""
    return await _killed(stage, "charge")


async def kill_after_effect_declared_safe(stage: Stage) -> Found:
    """The same, of a tool that deduplicates: another attempt needs the key that the dead process used."""
    found = await _killed(stage, "charge_once")
    return replace(
        found,
        harms=found.harms | key_harms(stage.keys),
        exercised=found.exercised and len(stage.keys) > 1,
    )


async def _killed(stage: Stage, tool: str) -> Found:
    stage.world.goes(**{tool: "silent"})
    async with stage.life() as alive:
        await alive.deliver("command-1", ITEM, tool)
        if not await stage.world.until(lambda world: bool(world.entries(ITEM)), REACH_S):
            seen = await stage.seen(alive)
            return _found(stage, seen, frozenset({Harm.LOST_EFFECT}), exercised=False)
        amid = await _running(alive) and stage.world.went(ITEM, "silent")
    stage.world.goes(**{tool: "honest"})
    async with stage.life() as alive:
        return _found(stage, await stage.again(alive, tool, disturbed=True), exercised=amid)


async def restart_with_redelivery(stage: Stage) -> Found:
    """A command that succeeded is delivered again after a kill: it is told again, and not done again."""
    async with stage.life() as alive:
        await alive.deliver("command-1", ITEM)
        first = await stage.seen(alive)
        ended = alive.lives and first.told is Outcome.SUCCEEDED
    async with stage.life() as alive:
        return _found(stage, await stage.again(alive), harms(first), exercised=ended)


async def redelivery_while_running(stage: Stage) -> Found:
    """A command is delivered again while its first call runs: both are one."""
    stage.world.goes(charge="silent")
    async with stage.life() as alive:
        await alive.deliver("command-1", ITEM)
        reached = await stage.world.until(lambda world: world.went(ITEM, "silent"), REACH_S)
        await alive.deliver("command-1", ITEM)
        amid = reached and await _running(alive)
        seen = await stage.seen(alive)
        await stage.still(len(stage.keys))
        return _found(stage, replace(seen, effects=stage.world.effects(ITEM)), exercised=amid)


async def conflict_on_changed_arguments(stage: Stage) -> Found:
    """A known id comes with other arguments: that is a mistake of the caller's, and must have no effect."""
    async with stage.life() as alive:
        await alive.deliver("command-1", ITEM)
        seen = await stage.seen(alive)
        taken = await alive.deliver("command-1", OTHER)
        executed = await stage.world.until(lambda world: bool(world.entries(OTHER)), SETTLE_S)
        ignored = frozenset({Harm.CONFLICT_IGNORED}) if taken or executed else frozenset[Harm]()
        return _found(stage, seen, ignored, exercised=stage.world.went(ITEM, "honest"))


async def play(case: Case, stage: Stage) -> Found:
    """Play a case. A subject that ends by itself, or hangs, is judged: that is no error of the battery.

    Raises what `start` raises where not even that has ever worked.
    """
    try:
        with anyio.fail_after(CASE_S):
            return await case(stage)
    except (AdapterEnded, AdapterSilent, TimeoutError) as error:
        if not stage.met:
            raise
        told = Outcome.UNHEARD if isinstance(error, AdapterEnded) else Outcome.RUNNING
        seen = Seen(told=told, effects=stage.world.effects(ITEM), answer=stage.world.answer(ITEM))
        return _found(stage, seen, exercised=False)


CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {
        case.__name__.replace("_", "-"): case
        for case in (
            honest,
            timeout_after_commit,
            error_after_commit,
            duplicate_answer,
            slow_answer,
            unavailable_verification,
            declared_safe,
            key_stability,
            key_distinctness,
            kill_after_effect,
            kill_after_effect_declared_safe,
            restart_with_redelivery,
            redelivery_while_running,
            conflict_on_changed_arguments,
        )
    }
)
"""Every case by its name, in order."""
