"""All cases against one adapter, and the certificate.

Part of `driver.conformance`. Before the subject, the battery judges clients of its own: one that is known to
be good, one that makes every mistake that a case is about, and one that does nothing. Where it does not see
each for what it is, it says nothing of anybody else.
"""

import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Final

import anyio

from driver.conformance.adapter import About
from driver.conformance.cases import CASES, Found, Stage, play
from driver.conformance.certificate import Certificate, Judged, certificate, judged
from driver.conformance.errors import ConformanceError, SelfCheckFailed
from driver.conformance.ledger import World
from driver.conformance.verdict import Harm

ADAPTERS: Final = ("effectd", "in-memory", "langgraph", "pydantic-ai")
"""Those that come with effectd, by the name that the command line knows."""
GOOD: Final = "careful"
MUST_FIND: Final[Mapping[str, Mapping[str, Harm]]] = MappingProxyType(
    {
        "reckless": MappingProxyType(
            {
                "timeout-after-commit": Harm.DUPLICATE,
                "error-after-commit": Harm.FALSE_FAILURE,
                "duplicate-answer": Harm.FALSE_SUCCESS,
                "slow-answer": Harm.DUPLICATE,
                "unavailable-verification": Harm.FALSE_FAILURE,
                "declared-safe": Harm.UNSTABLE_KEY,
                "key-stability": Harm.DUPLICATE,
                "key-distinctness": Harm.SHARED_KEY,
                "kill-after-effect": Harm.DUPLICATE,
                "kill-after-effect-declared-safe": Harm.UNSTABLE_KEY,
                "restart-with-redelivery": Harm.DUPLICATE,
                "redelivery-while-running": Harm.DUPLICATE,
                "conflict-on-changed-arguments": Harm.CONFLICT_IGNORED,
            }
        ),
        "idle": MappingProxyType({"honest": Harm.LOST_EFFECT}),
    }
)
"""What the battery must see in each of its bad clients: between them, a harm in every case."""
WATCH_S: Final = 5.0
"""How often somebody who waits is told that a case still runs."""

Told = Callable[[Judged], None]
Watch = Callable[[str, str, float], None]
"""Is told the adapter, the case that runs, and for how many seconds: as it begins, and every `WATCH_S`."""


def _unheard(*_: object) -> None:
    """Tell nobody."""


def built_in(name: str, python: str = sys.executable) -> tuple[str, ...]:
    """Return the command of an adapter that comes with effectd, run by the interpreter `python`."""
    return (python, "-m", f"driver.conformance.adapters.{name.replace('-', '_')}")


async def examine(
    adapter: str,
    argv: Sequence[str],
    *,
    cases: Collection[str] = (),
    told: Told = _unheard,
    watch: Watch = _unheard,
    self_checked: bool = False,
) -> Certificate:
    """Play cases, all where none is named, against an adapter; `told` gets each as it ends.

    Takes about a minute, and at most `cases.CASE_S` a case. Raises `ConformanceError` where the adapter does
    not keep to the three verbs. Cancelled, it leaves no process and no file.
    """
    met: list[About] = []
    done: list[Judged] = []
    for name in cases or CASES:
        began = monotonic()
        async with _stage(argv, met) as stage:
            found = await _played(stage, name, partial(watch, adapter, name))
        done.append(judged(name, found, monotonic() - began))
        told(done[-1])
    return certificate(adapter, met[-1], done, self_checked=self_checked)


async def _played(stage: Stage, name: str, watch: Callable[[float], None]) -> Found:
    """Play one case, and tell `watch` that it runs."""
    found: Found | ConformanceError | None = None

    async def tick() -> None:
        began = monotonic()
        while True:
            watch(monotonic() - began)
            await anyio.sleep(WATCH_S)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        try:
            found = await play(CASES[name], stage)
        except ConformanceError as error:  # not in a group of errors, which it would leave the task group in
            found = error
        tasks.cancel_scope.cancel()
    if isinstance(found, ConformanceError):
        raise found
    assert found is not None, "a case ends with what it found, or with an error"
    return found


@asynccontextmanager
async def _stage(argv: Sequence[str], met: list[About]) -> AsyncGenerator[Stage]:
    """Make the folders of one case: the world's, and the subject's own.

    What has left the subject's process group may go on writing there while they are removed.
    """
    with tempfile.TemporaryDirectory(prefix="effectd-conformance-", ignore_cleanup_errors=True) as folder:
        world, state = Path(folder) / "world", Path(folder) / "state"
        world.mkdir()
        state.mkdir()
        made = World(folder=world)
        made.goes()
        yield Stage(argv=argv, world=made, state=state, met=met)


async def self_check(watch: Watch = _unheard) -> None:
    """Judge the battery's own clients. Raises `SelfCheckFailed` where one is judged wrongly.

    The good client must pass every case: one that it does not exercise would prove nothing of anybody. What
    it misses once, it may try again: a busy machine lets a moment pass.
    """
    good = await examine(GOOD, built_in(GOOD), watch=watch)
    missed = [one.case for one in good.cases if one.verdict == "not_exercised"]
    again = (await examine(GOOD, built_in(GOOD), cases=missed, watch=watch)).cases if missed else ()
    ends = {one.case: one for one in (*good.cases, *again)}.values()
    wrong = [_wrong(GOOD, one, "it must pass") for one in ends if one.verdict != "passed"]
    for name, must in MUST_FIND.items():
        bad = await examine(name, built_in(name), cases=tuple(must), watch=watch)
        wrong += [
            _wrong(name, one, f"it must show {must[one.case]}")
            for one in bad.cases
            if must[one.case] not in one.harms
        ]
    if wrong:
        raise SelfCheckFailed(wrong)


def _wrong(client: str, one: Judged, must: str) -> str:
    shown = ", ".join(one.harms) or "no harm"
    return f"the {client} client in {one.case}: {one.verdict} with {shown}, and {must}"
