"""Two planes at once, each of which takes itself for the only one. Part of `hostile`.

A daemon's connections go to one or the other, by chance. Both give commands under the same ids, with the
same content or another one; each acknowledges when it likes, and remembers only what it has seen itself.
Neither may make the daemon execute anything twice: each holds the whole history in the end, byte for byte
the same, and what came second with another content was refused as a conflict.
"""

import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tests.faults.balance import Balance
from tests.faults.hostile.gullible import GulliblePlane
from tests.faults.lane import BROKEN_MAX
from tests.faults.network.cutter import Cutter
from tests.faults.network.station import Station, leaves, port_of, station
from tests.system.audit import key_of
from tests.system.plane import ScriptedPlane, call, scripted_plane

STEPS: Final = 40
"""Inputs with one journal."""


@dataclass(slots=True)
class Switch(Cutter):
    """A relay that goes wherever it is told."""

    targets: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    next: int = 0
    """Which of them the next connection goes to."""

    def take(self, near: socket.socket) -> None:
        self.target = self.targets[self.next]
        Cutter.take(self, near)


@dataclass(slots=True)
class Rival(GulliblePlane):
    """A plane beside another one."""

    rival: ScriptedPlane | None = None

    def look_again(self) -> None:
        """Whatever happens here may be what is waited for there."""
        for plane in (self, self.rival):
            if plane is not None:
                ScriptedPlane.look_again(plane)


async def rivalries(
    balance: Balance, folder: Path, seed: int, numbers: range, over: Callable[[], bool]
) -> None:
    """Let two planes be rivals, again and again, until there were as many inputs as numbers."""
    for number in range(numbers.start, numbers.stop, STEPS):
        if over() or len(balance.broken) >= BROKEN_MAX:
            return
        try:
            await _one(balance, folder / f"rivals-{number}", Random(seed * 1_000_000_093 + number))
        except* Exception as group:  # noqa: BLE001 - a daemon that falls over breaks a promise, too
            said = "; ".join(leaves(group))[:2_000]
            balance.broken.append(f"rivals, seed {seed}, number {number}: {said}")


async def _one(balance: Balance, folder: Path, chance: Random) -> None:
    first, second = Rival(), Rival()
    first.rival, second.rival = second, first
    async with scripted_plane(plane=second):

        def relay(target: tuple[str, int], changed: Callable[[], None]) -> Switch:
            return Switch(target, changed, targets=[target, ("127.0.0.1", port_of(second))])

        async with station(folder, tls=False, plane=first, relay=relay) as made:
            second.validates = False
            rivalry = _Rivalry(made=made, planes=(first, second), chance=chance)
            try:
                await rivalry.play(balance)
            except AssertionError:
                for plane in rivalry.planes:
                    balance.count(plane, rivalry.executed)
                raise


@dataclass(slots=True, kw_only=True)
class _Rivalry:
    made: Station
    planes: tuple[Rival, Rival]
    chance: Random
    given: set[str] = field(default_factory=set[str])
    """The keys of what was asked for."""

    @property
    def executed(self) -> Counter[str]:
        """How often each key was executed."""
        return Counter(str(each.key) for each in self.made.rig.provider.executed)

    async def play(self, balance: Balance) -> None:
        """Let both speak, and then hear all. Raises AssertionError where something is wrong."""
        first, second = self.planes
        await self.comes_to(second)
        for step in range(STEPS):
            await self.step(step)
            balance.tried += 1
            balance.fired["words of two planes at once"] += 1
        # what the second one had still to give, the first one has not seen
        for plane in (first, second, first):
            plane.acks = True
            await self.comes_to(plane)
            await plane.acknowledge()
            await self.caught_up(plane)
        balance.reached["a conflict between two planes"] += self.judge()

    async def comes_to(self, plane: Rival) -> None:
        """Return once the daemon was welcomed by this plane."""
        switch = self.made.cutter
        assert isinstance(switch, Switch)
        switch.next = self.planes.index(plane)
        hellos = len(plane.hellos)
        for each in self.planes:
            each.cut()
        await plane.until(lambda: len(plane.hellos) > hellos and self.made.link.statistics().connected)

    async def caught_up(self, plane: Rival) -> None:
        """Return once the plane has seen all that the journal has, and has an answer to everything."""
        journal = self.made.rig.journal
        await plane.until(
            lambda: not plane.unanswered() and plane.history.last_seq == journal.statistics().last_seq
        )

    async def step(self, step: int) -> None:
        plane = self.chance.choice(self.planes)
        match self.chance.randrange(5):
            case 0:
                await self.comes_to(plane)
            case 1:
                plane.acks = not plane.acks
            case _:
                name, n = f"cmd-{self.chance.randint(0, step // 2)}", self.chance.choice((0, 0, 0, 1))
                command = call(name, "tools/act", n=n, of=name)
                self.given.add(key_of(command))
                await plane.give(command)

    def judge(self) -> int:
        """Raise AssertionError where something is wrong; return how many commands were refused."""
        first, second = (plane.history for plane in self.planes)
        assert first.frames == second.frames, "the planes hold different histories"
        executed = self.executed
        assert executed.total() == len(executed), "something was executed twice"
        assert set(executed) == self.given, f"asked for: {self.given}, executed: {executed}"
        codes = sum((plane.codes for plane in self.planes), Counter[str]())
        assert set(codes) <= {"conflict"}, codes
        return codes.total()
