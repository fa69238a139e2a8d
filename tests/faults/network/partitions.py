"""Networks that carry nothing, or one way only, or little; peers that stand still. Part of `network`.

A real daemon lives in a network namespace of its own (`countryside`), or behind a gate where this machine has
none (`gate`). While it works for the plane,
something happens to the network or to one of the two; the plane goes on giving commands meanwhile, and
somebody on the daemon's own machine, too. The daemon notices a dead link within `dead_after_s` and a little
more, comes back when it can, and delivers all: nothing is executed twice, nothing is lost, and the journal
is whole.

Real time, real processes: a seed tells which things happen in which order, but not the moment.
"""

import random
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Final, TypeAlias

import anyio
from anyio.abc import Process

from tests.faults.balance import HANG_S, Balance
from tests.faults.network.countryside import Cottage, cottage, leave
from tests.faults.network.gate import Gate
from tests.faults.network.station import leaves, port_of
from tests.system.audit import key_of, must_hold
from tests.system.plane import ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Life, Sandbox, sandbox
from tests.system.zygote import ROOT, Zygote

DEAD_AFTER_S: Final = 2.0
NEVER_S: Final = 3_600.0
"""After which a link counts as dead that nobody watches: the control."""
UNNOTICED: Final = "a dead link was not noticed within"
SIDE_BY_SIDE: Final = 3
"""Daemons at once: each of them waits, most of the time."""
LETTER: Final = "x" * 1_500
LETTERS: Final = 12
LOSSES_MAX: Final = 5
"""How often some packets are sent where each may be lost, before it is given up."""


@dataclass(slots=True, kw_only=True)
class Place:
    """A daemon, its plane, and the network between them."""

    home: Cottage | Gate
    plane: ScriptedPlane
    made: Sandbox
    life: Life
    relay: Process
    balance: Balance
    numbers: "count[int]" = field(default_factory=count)

    async def give(self, commands: int = 1, text: str = "") -> None:
        """Give commands to the plane, which sends them if it thinks that it can."""
        for _ in range(commands):
            number = next(self.numbers)
            await self.plane.give(call(f"cmd-{number}", n=number, text=text))

    async def annotate(self) -> None:
        """Have somebody on the daemon's machine record something: an event for the plane."""
        key = key_of(self.plane.orders["cmd-0"].command)
        status, said = await self.made.post(f"/v1/operations/{key}/annotate", {"metadata": {"id": "7"}})
        assert status == 202, said

    async def meanwhile(self) -> None:
        """Work from both sides."""
        await self.give(2)
        await self.annotate()

    @property
    def broken(self) -> int:
        """How many connections the daemon has given up, or not come to have."""
        text = self.life.text
        return text.count('"link_closed"') + text.count('"link_failed"')

    async def noticed(self, broken: int) -> None:
        """Return once the daemon has given up a connection more than those `broken` ones."""
        began = monotonic()
        with anyio.move_on_after(DEAD_AFTER_S + HANG_S) as scope:
            while self.broken <= broken:  # noqa: ASYNC110 - another process's file
                await anyio.sleep(0.05)
        assert not scope.cancelled_caught, f"{UNNOTICED} {DEAD_AFTER_S + HANG_S:g} s"
        self.balance.took(began)
        self.balance.reached["a dead link was noticed"] += 1

    async def whole(self) -> None:
        """Return once all is answered: maybe by what a connection still held that the daemon has given up."""
        began = monotonic()
        await self.plane.connected()
        await self.plane.answered()
        self.balance.took(began)

    def healed(self, what: str) -> int:
        """Make the network whole again; count what it has swallowed, and return how much that was."""
        count = self.home.dropped()
        self.balance.fired[what] += count
        self.home.heal()
        return count

    async def redelivered(self) -> None:
        """Return once each receipt came again; where another connection begins, all is asked for anew."""
        plane = self.plane
        receipts = [(plane.history.journal_id, plane.history.receipts[name]) for name in plane.orders]
        seen = {place: plane.repeats[place] for place in receipts}

        def are_here() -> bool:
            return all(plane.repeats[place] > count for place, count in seen.items())

        while not are_here():
            await plane.connected()
            hellos = len(plane.hellos)
            for name in plane.orders:
                await plane.deliver(name)
            await plane.until(lambda: are_here() or len(plane.hellos) > hellos)  # noqa: B023 - asked now


Home: TypeAlias = AbstractContextManager[Cottage | Gate]
Trouble: TypeAlias = Callable[[Place], Awaitable[int]]
"""Returns how much of it there really was."""


async def _black_hole(place: Place, *chains: str) -> int:
    """Packets are dropped, until the daemon has noticed."""
    broken = place.broken
    await place.give()
    place.home.drop(*chains)
    await place.meanwhile()
    await place.noticed(broken)
    return place.healed("packets dropped")


async def _stopped_plane(place: Place) -> int:
    """The kernel takes what the daemon sends, and nobody reads it."""
    broken = place.broken
    await place.give()
    place.relay.send_signal(signal.SIGSTOP)
    try:
        stood = await stands_still(place.relay.pid)
        await place.meanwhile()
        await place.noticed(broken)
    finally:
        place.relay.send_signal(signal.SIGCONT)
    place.balance.fired["a plane stood still"] += stood
    return stood


async def _stopped_daemon(place: Place) -> int:
    """For longer than after which a link counts as dead."""
    await place.give()
    place.life.send(signal.SIGSTOP)
    try:
        stood = await stands_still(place.life.pid)
        await place.give(2)
        await anyio.sleep(2 * DEAD_AFTER_S)
    finally:
        place.life.send(signal.SIGCONT)
    place.balance.fired["a daemon stood still"] += stood
    return stood


async def stands_still(pid: int) -> bool:
    """Return whether a process was stopped by a signal, as soon as it is, or after `HANG_S`."""
    with anyio.move_on_after(HANG_S):
        while _state_of(pid) != "T":  # noqa: ASYNC110 - the kernel tells nobody
            await anyio.sleep(0.01)
        return True
    return False


def _state_of(pid: int) -> str:
    # behind the name, which may hold anything
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def _slow_cable(place: Place) -> int:
    """Far more is to be sent than goes through in the time after which a link counts as dead."""
    place.home.slow_down()
    began = monotonic()
    await place.give(LETTERS, text=LETTER)
    await place.plane.answered()
    was_slow = monotonic() - began > 1.0
    place.home.heal()
    return was_slow


async def _loss(place: Place, *chains: str) -> int:
    """A third of the packets is dropped for a while: until one was, at least."""
    place.home.drop(*chains, share=0.3)
    for _ in range(LOSSES_MAX):
        await place.give(4)
        await place.annotate()
        with anyio.move_on_after(3 * DEAD_AFTER_S):
            await place.plane.answered()
        if place.home.dropped():
            break
    return place.healed("packets lost")


async def _hiccup(place: Place) -> int:
    """Nothing goes through for less than after which a link counts as dead: nobody need notice."""
    place.home.drop("INPUT", "OUTPUT")
    await place.meanwhile()
    await anyio.sleep(DEAD_AFTER_S / 4)
    return place.healed("packets dropped")


def _holes(*chains: str) -> Trouble:
    return lambda place: _black_hole(place, *chains)


def _losses(*chains: str) -> Trouble:
    return lambda place: _loss(place, *chains)


ALWAYS: Final[Mapping[str, Trouble]] = MappingProxyType(
    {
        "a black hole both ways": _holes("INPUT", "OUTPUT"),
        "a black hole towards the plane": _holes("OUTPUT"),
        "a black hole towards the daemon": _holes("INPUT"),
        "a plane that stands still": _stopped_plane,
        "a daemon that stands still": _stopped_daemon,
        "a slow cable": _slow_cable,
        "loss one way, towards the plane": _losses("OUTPUT"),
        "loss one way, towards the daemon": _losses("INPUT"),
    }
)
"""Those of each run."""
OTHERS: Final[Mapping[str, Trouble]] = MappingProxyType(
    {
        "loss both ways": _losses("INPUT", "OUTPUT"),
        "a hiccup": _hiccup,
    }
)
ALL: Final = MappingProxyType({**ALWAYS, **OTHERS})


def work(seed: int, wanted: int, until_s: float, *, in_networks: bool) -> Balance:
    """Bring so many partitions about, those of each run first; then random ones, while there is time."""
    if in_networks:
        leave()
    return anyio.run(_work, seed, wanted, monotonic() + until_s, in_networks)


def control(*, in_networks: bool) -> Balance:
    """Take the watch over the link away, and let a black hole come: it must not pass for noticed."""
    if in_networks:
        leave()
    return anyio.run(_unwatched, in_networks)


async def _unwatched(in_networks: bool) -> Balance:
    balance, zygote = Balance(), Zygote()
    home = cottage(0) if in_networks else nullcontext(Gate(number=0))
    try:
        async with _place(zygote, home, balance, dead_after_s=NEVER_S) as place:
            try:
                await _through(place, ["a black hole both ways"])
            except AssertionError as error:
                balance.broken.append(str(error))
                place.home.heal()
    finally:
        zygote.close()
    return balance


async def _work(seed: int, wanted: int, until: float, in_networks: bool) -> Balance:
    balance, chance = Balance(), random.Random(seed)
    plans = [[name] for name in ALWAYS]
    plans += [chance.choices(tuple(ALL), k=chance.randint(1, 3)) for _ in range(wanted - len(plans))]
    zygote = Zygote()
    gate = anyio.CapacityLimiter(SIDE_BY_SIDE)
    try:
        async with anyio.create_task_group() as tasks:
            for number, plan in enumerate(plans):
                await gate.acquire_on_behalf_of(f"partition {number}")
                if number >= len(ALWAYS) and monotonic() > until:
                    break
                home = cottage(number) if in_networks else nullcontext(Gate(number=number))
                tasks.start_soon(_one, zygote, home, f"partition {number}", plan, balance, gate)
    finally:
        zygote.close()
    return balance


async def _one(
    zygote: Zygote, home: Home, name: str, plan: list[str], balance: Balance, gate: anyio.CapacityLimiter
) -> None:
    try:
        async with _place(zygote, home, balance) as place:
            try:
                await _through(place, plan)
            finally:
                balance.count_in(place.made, place.plane)
        balance.tried += 1
    except* AssertionError as group:
        balance.broken += [f"{name}, {plan}: {error}"[:3_000] for error in leaves(group)]
    finally:
        gate.release_on_behalf_of(name)


async def _through(place: Place, plan: Sequence[str]) -> None:
    """Let these troubles come, one after the other. Raises AssertionError where a promise is broken."""
    await place.give()
    await place.whole()
    for trouble in plan:
        there = await ALL[trouble](place)
        await place.whole()
        place.balance.reached[trouble] += bool(there)
    await _must_hold(place)


@asynccontextmanager
async def _place(
    zygote: Zygote, made_home: Home, balance: Balance, *, dead_after_s: float = DEAD_AFTER_S
) -> AsyncGenerator[Place]:
    with made_home as home:
        async with scripted_plane(host=home.plane) as plane, sandbox(zygote, plane) as made:
            relay = await anyio.open_process(
                [sys.executable, "-m", "tests.faults.network.relay", home.plane, str(port_of(plane))],
                cwd=ROOT,
                stderr=None,
            )
            try:
                assert relay.stdout is not None
                async with home.way(int(await relay.stdout.receive())) as port:
                    url = f"ws://{home.plane}:{port}/driver"
                    made.configure(
                        control={"url": url, "allow_plaintext": True, "dead_after_s": dead_after_s}
                    )
                    life = await made.execute(*home.wrapper)
                    await plane.connected()
                    yield Place(home=home, plane=plane, made=made, life=life, relay=relay, balance=balance)
            finally:
                relay.kill()
                with anyio.CancelScope(shield=True):
                    await relay.aclose()


async def _must_hold(place: Place) -> None:
    """All comes again in the same bytes, the daemon stops politely, and nothing is missing or doubled."""
    await place.redelivered()
    assert await place.life.stop() == 0, place.life.text[-2_000:]
    verified = await place.made.command("verify", "--deep")
    assert verified.code == 0, verified.text
    assert "Traceback" not in place.life.text, place.life.text[-4_000:]
    await must_hold(place.made)
    annotations = sum(event["kind"] == "operation.annotated" for event in place.plane.history.events())
    place.balance.reached["an event that was recorded while nothing came through"] += annotations
    place.balance.reached["an event came again, in the same bytes"] += sum(place.plane.repeats.values())
    place.balance.reached["a command was delivered again"] += place.plane.redeliveries
