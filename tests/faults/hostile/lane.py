"""Lane `hostile peers`: what `run` does, and what it reports."""

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from json import JSONDecoder
from multiprocessing import get_context
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final

import anyio
import structlog

from driver.core.attempts import Answered
from driver.core.attempts import Report as ToolReport
from driver.core.stream import Stream
from store.records import JsonObject
from tests.driver.providers.mcp.mutations import bent, success_of
from tests.driver.providers.mcp.test_mutations import over_http, sized
from tests.faults.balance import Balance
from tests.faults.hostile import daemons, liars, parsers, relays, rivals, visits
from tests.faults.hostile.decoders import DECODERS
from tests.faults.lane import BROKEN_MAX, MEASURES, Report

NAME: Final = "hostile peers"
SILENT: Final = 50
CONTROL: Final = 20_000
HTTP_BATCH: Final = 50
WANTED: Final = frozenset(
    {
        "words to the parser of frames", "lines to the parser of MCP", "inputs of lying planes",
        "words over a socket", "bytes in place of frames", "answers to a handshake",
    "lines on a local socket", relays.BESIDE, relays.ANSWERED, relays.REFUSED,
        "bent answers over HTTP", "words of two planes at once", "a conflict between two planes",
    "hostile servers, called by a real daemon",
        "a word that is a frame", "a word that is no frame", "a command that is refused for good",
        "a success that a server reported", "a history was confirmed", "a command was delivered",
    liars.FUTURE,
        "fence: rolled_back", "fence: forked", "fence: conflict", "fence: superseded",
        "closed with 1002", "closed with 1007", "closed with 1009", "calls that were executed",
        "answers with a code", "HTTP 200", "HTTP 400", "HTTP 403", "HTTP 404", "HTTP 405", "HTTP 422",
        "a real daemon stood it", "caught: duplicate keys are taken", "caught: the future is believed",
        "caught: a success needs no clear yes", *(f"caught: {name}" for name in DECODERS),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way by which inputs come in, and how much of the lane it is."""

    points: float
    """Share of the count."""
    time: float
    """Share of the time box, at most; what one leaves over, the others do not get."""


WAYS: Final = {
    "words": Way(points=0.03, time=0.25),
    "garbage": Way(points=0.0125, time=0.2),
    "handshakes": Way(points=0.0125, time=0.15),
    "rivals": Way(points=0.006, time=0.1),
    "http": Way(points=0.002, time=0.05),
    "frames": Way(points=0.5, time=0.4),
    "liars": Way(points=0.3, time=0.3),
    "lines": Way(points=0.143, time=0.1),
}


def run(seed: int, seconds: float, target: int) -> Report:
    """Be hostile for so many seconds, or with so many inputs."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="effectd-faults-", dir=memory) as folder,
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers,
    ):
        inside = workers.submit(work, Path(folder), seed, seconds, target)
        outside = workers.submit(daemons.work, seed, seconds / 2)
        balances = (inside.result(), outside.result())
    return _report(seed, balances, _controls(seed))


def _controls(seed: int) -> dict[str, str | None]:
    """Take each mechanism away in a process of its own: a spoilt one would be noticed for what spoilt it."""
    noticed: dict[str, str | None] = {}
    for name in CONTROLS:
        with ProcessPoolExecutor(1, mp_context=get_context("fork")) as spoilt:
            noticed[name] = spoilt.submit(control, name, seed).result()
    return noticed


def work(folder: Path, seed: int, seconds: float, target: int) -> Balance:
    """Be hostile in this process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(SILENT))
    balance = Balance()
    for name, way in WAYS.items():
        until = monotonic() + seconds * way.time
        _go(balance, folder, seed, name, range(int(target * way.points)), _past(until))
    return balance


def _past(until: float) -> Callable[[], bool]:
    return lambda: monotonic() > until


def _go(
    balance: Balance, folder: Path, seed: int, name: str, numbers: range, over: Callable[[], bool]
) -> None:
    match name:
        case "frames":
            parsers.frames(balance, seed, numbers, over)
        case "lines":
            parsers.lines(balance, seed, numbers, over)
        case "liars":
            liars.conversations(balance, seed, numbers, over)
        case "rivals":
            anyio.run(rivals.rivalries, balance, folder, seed, numbers, over)
        case "http":
            anyio.run(_bent_answers, balance, folder, seed, numbers, over)
        case _:
            anyio.run(visits.visit, balance, folder, seed, name, numbers, over)


async def _bent_answers(
    balance: Balance, folder: Path, seed: int, numbers: range, over: Callable[[], bool]
) -> None:
    """Answer calls of the provider for MCP over HTTP with what only resembles an answer."""
    for at in range(numbers.start, numbers.stop, HTTP_BATCH):
        if over() or len(balance.broken) >= BROKEN_MAX:
            return
        some = range(at, min(at + HTTP_BATCH, numbers.stop))
        bodies = [bent(Random(seed * 1_000_000_087 + n)).replace(b"ID", b"IDENT") for n in some]
        responses = [(sized(body), success_of([body.replace(b"IDENT", b"ID")])) for body in bodies]
        place = folder / f"http-{at}"
        place.mkdir(parents=True)
        found = await over_http(place, responses)
        balance.broken += [
            f"HTTP, seed {seed}, numbers {some.start} to {some.stop - 1}: {each}" for each in found
        ]
        balance.tried += len(some)
        balance.fired["bent answers over HTTP"] += len(some)


# --- controls


def _takes_duplicates() -> None:
    module: Any = import_module("driver.core.strictjson")
    module._DECODER = JSONDecoder(parse_float=module._finite, parse_constant=module._refuse_constant)


def _believes_the_future() -> None:
    def was_sent(self: Stream, seq: int) -> bool:
        del self, seq
        return True

    Stream.was_sent = was_sent  # type: ignore[method-assign]


def _wants_no_clear_yes() -> None:
    def report_of(envelope: JsonObject) -> ToolReport:
        result = envelope.get("result")
        return Answered(result=result) if isinstance(result, dict) else lax(envelope)

    module: Any = parsers
    lax: Callable[[JsonObject], ToolReport] = module.report_of
    module.report_of = report_of


CONTROLS: Final = {
    "duplicate keys are taken": (_takes_duplicates, parsers.frames),
    "the future is believed": (_believes_the_future, liars.conversations),
    "a success needs no clear yes": (_wants_no_clear_yes, parsers.lines),
    **{name: (patch, parsers.lines) for name, patch in DECODERS.items()},
}


def control(name: str, seed: int) -> str | None:
    """Take a mechanism away, and return how it was noticed. The process is spoilt afterwards."""
    patch, attack = CONTROLS[name]
    patch()
    balance = Balance()
    attack(balance, seed, range(CONTROL), lambda: bool(balance.broken))
    return balance.broken[0] if balance.broken else None


# --- the report


def _report(seed: int, balances: Sequence[Balance], caught: dict[str, str | None]) -> Report:
    report = Report(name=NAME, seed=seed, tried="", wanted=WANTED)
    for balance in balances:
        report.fired += balance.fired
        report.reached += balance.reached
        report.broken += balance.broken
    figures = sum((balance.figures for balance in balances), Counter[str]())
    report.figures = {name: figures[name] for name in MEASURES}
    report.points = sum(balance.tried for balance in balances)
    slowest_s = max(balance.slowest_s for balance in balances)
    report.tried = (
        f"{report.points:,} inputs, {balances[1].tried:,} of them to {balances[1].lives} real daemons; "
        f"the longest wait was {slowest_s:.1f} s"
    )
    for name, noticed in caught.items():
        report.reached[f"caught: {name}"] += noticed is not None
        report.notes.append(f"where {name}: {(noticed or 'NOTHING')[:300]}")
    return report
