"""Hostile words and bytes to the real link and the real engine, over real sockets, in this process.

Part of `hostile`. After each batch the daemon is connected and serves, the journal holds, nothing was
executed that no valid command asked for, and each answer is one that the documentation names.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from store.verify import verify_journal
from tests.faults.balance import Balance
from tests.faults.hostile import judge
from tests.faults.hostile.forger import Forger
from tests.faults.hostile.gullible import GulliblePlane
from tests.faults.hostile.hearing import close_code, texts
from tests.faults.hostile.wire import garbage, handshake
from tests.faults.hostile.words import Json, word
from tests.faults.lane import BROKEN_MAX
from tests.faults.network.station import leaves, station
from tests.system.audit import key_of
from tests.system.plane import call

BATCH: Final = 64
LIFE_MAX: Final = 20
"""Batches with one journal."""
IN_A_ROW: Final = 8
"""Handshakes that are forged, before one comes through."""
CLOSES: Final = frozenset({1000, 1001, 1002, 1003, 1007, 1009, 1013})
"""Codes with which a daemon may end a connection (RFC 6455, 7.4.1, and its registry)."""


@dataclass(slots=True, kw_only=True)
class Visit:
    """A daemon that is spoken to, and what may come of it."""

    balance: Balance
    seed: int
    plane: GulliblePlane
    forger: Forger
    connected: Callable[[], bool]
    """Whether the daemon was welcomed."""
    executed: Callable[[], list[str]]
    """The key of each execution."""
    tool: str
    """One that succeeds."""
    allowed: set[str] = field(default_factory=set[str])
    """The keys of calls that a valid command has asked for."""
    honest: int = 0
    asked: int = 0

    async def words(self, numbers: range) -> None:
        """Say words, as text or binary frames."""
        for number in numbers:
            text = word(self.seed, number)
            meant = self._meant(text)
            if _fences(meant):
                continue
            await self.plane.say(text)
            self._count("words over a socket")
            if meant.get("type") in ("reject", "nack"):
                # the daemon hangs up, or pauses for as long as it is told
                await self._heard()
                self.plane.cut()
                await self.plane.until(self.connected)
        await self._heard()

    async def garbage(self, numbers: range) -> None:
        """Put bytes into the plane's mouth that are no frames, or none that it may send.

        What is whole in front of a fault is heard, and may be a call that is made, or ask for a fence.
        """
        for number in numbers:
            connections, data = self.forger.connections, garbage(self.seed, number)
            if any(_fences(self._meant(text)) for text in texts(data)):
                continue
            self.forger.inject(data)
            self._count("bytes in place of frames")
            await self.plane.until(lambda: self.forger.connections > connections and self.connected())  # noqa: B023
            code = self.forger.close_code
            self.balance.reached[f"closed with {code or 'no word'}"] += 1
            # what was said to it is said back
            assert code is None or code in CLOSES or code == close_code(data), (
                f"garbage {number} was answered with a close {code}"
            )

    async def handshakes(self, numbers: range) -> None:
        """Answer handshakes in ways that are none."""
        for number in numbers[::IN_A_ROW]:
            some, forged = range(number, min(number + IN_A_ROW, numbers.stop)), self.forger.forged
            self.forger.handshakes.extend(handshake(self.seed, each) for each in some)
            self.plane.cut()
            await self.plane.until(lambda: not self.forger.handshakes and self.connected())
            self._count("answers to a handshake", self.forger.forged - forged)

    async def _heard(self) -> None:
        """Return once all words were heard: what comes last is answered, too, or the daemon has hung up."""
        self.asked += 1
        asked, hellos = f"asked-{self.asked}", len(self.plane.hellos)
        await self.plane.say({"type": asked})
        await self.plane.until(
            lambda: (
                len(self.plane.hellos) > hellos
                or any(asked in error["message"] for error in self.plane.errors)
            )
        )

    def _meant(self, text: str | bytes) -> Json:
        try:
            meant = judge.meaning(text)
        except judge.NoFrame:
            return {}
        if judge.is_call(meant):
            self.allowed.add(key_of(meant))
        return meant

    def _count(self, what: str, count: int = 1) -> None:
        self.balance.tried += count
        self.balance.fired[what] += count

    async def must_hold(self) -> None:
        """Raise AssertionError where the daemon does not serve, or something is wrong."""
        try:
            await self._hold()
        except AssertionError:
            self.balance.count(self.plane, Counter(self.executed()))
            raise

    async def _hold(self) -> None:
        self.honest += 1
        order = call(f"honest-{self.honest}", self.tool, run_id="run-honest", n=self.honest)
        self.allowed.add(key_of(order))
        self.plane.cut()
        await self.plane.give(order)
        began = monotonic()
        receipt = await self.plane.receipt_of(order["command_id"])
        self.balance.took(began)
        assert receipt["kind"] == "operation.succeeded", receipt
        executed = self.executed()
        assert len(executed) == len(set(executed)), "something was executed twice"
        assert set(executed) <= self.allowed, f"nobody asked for {set(executed) - self.allowed}"
        self.balance.reached["calls that were executed"] = max(
            len(executed), self.balance.reached["calls that were executed"]
        )
        assert not (odd := self.plane.undocumented()), f"answers that the documentation does not name: {odd}"
        self.balance.reached["answers with a code"] += self.plane.codes.total()
        self.plane.codes.clear()
        self.plane.check()


def _fences(meant: Json) -> bool:
    """Whether a fence is what it asks for, and what it gets: a matter of `liars`."""
    return meant.get("code") == "conflict" and meant["type"] == "nack"


Batch = Callable[[Visit, range], Awaitable[None]]
BATCHES: Final[dict[str, Batch]] = {
    "words": Visit.words,
    "garbage": Visit.garbage,
    "handshakes": Visit.handshakes,
}


async def visit(
    balance: Balance, folder: Path, seed: int, what: str, numbers: range, over: Callable[[], bool]
) -> None:
    """Say all that has these numbers, with a new journal every now and then."""
    at = numbers.start
    while at < numbers.stop and not over() and len(balance.broken) < BROKEN_MAX:
        begun = at
        try:
            async with _received(balance, folder / f"{what}-{at}", seed) as made:
                for _ in range(LIFE_MAX):
                    some = range(at, min(at + BATCH, numbers.stop))
                    if over() or not some:
                        break
                    begun, at = at, some.stop
                    await BATCHES[what](made, some)
                    await made.must_hold()
        except* Exception as group:  # noqa: BLE001 - a daemon that falls over breaks a promise, too
            said = "; ".join(leaves(group))[:2_000]
            balance.broken.append(f"{what}, seed {seed}, numbers {begun} to {at - 1}: {said}")


@asynccontextmanager
async def _received(balance: Balance, folder: Path, seed: int) -> AsyncGenerator[Visit]:
    plane = GulliblePlane()
    forger: list[Forger] = []

    def relay(target: tuple[str, int], changed: Callable[[], None]) -> Forger:
        forger.append(Forger(target, changed))
        return forger[0]

    async with station(folder, tls=False, plane=plane, relay=relay) as made:
        await made.settled()
        balance.lives += 1
        yield Visit(
            balance=balance,
            seed=seed,
            plane=plane,
            forger=forger[0],
            connected=lambda: made.connected,
            executed=lambda: [str(each.key) for each in made.rig.provider.executed],
            tool="tools/act",
        )
        findings = await verify_journal(made.rig.journal, lambda _: None)
        assert not findings, findings
