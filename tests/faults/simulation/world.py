"""One simulated world: a daemon that is killed and started again, a plane, tools, a person; from one seed.

For a while everything goes wrong that the seed says. Then the world heals, and must come to rest: each
command has its receipt, and what the journal says is what has happened.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

from driver.faults import BOUNDARIES
from store.records import OperationRecord
from store.settings import JournalSettings
from store.verify import verify_file
from tests.faults.simulation.disk import Disk
from tests.faults.simulation.files import copy_folder, remove_folder
from tests.faults.simulation.life import BASE, STOP_S, Around, Clocks, Life, counting, dead_letters, records
from tests.faults.simulation.network import Network
from tests.faults.simulation.person import Person, Whims
from tests.faults.simulation.plane import Plane
from tests.faults.simulation.rivals import CLONED, INSEPARABLE, INTRUDING, Rivals
from tests.faults.simulation.themes import THEMES, TWO_DAEMONS, Theme
from tests.faults.simulation.tools import Tools
from tests.faults.simulation.truth import Say, Truth

TROUBLE_S: Final = 40.0
"""For how long things go wrong."""
REST_S: Final = 1_200.0
"""In what time everything must have come to rest afterwards: longer than any contract lets it wait."""
LOOK_S: Final = 2.0
OPERATOR_S: Final = 7.0
"""How often an operator looks."""
DELEGATING, GOING_ON, FORGETTING, RESENDING = 0.1, 0.5, 0.15, 0.2
"""In how many worlds a call is delegated; of these, to one more run; what is over is soon forgotten; what was
not executed is sent again, and tried again."""
KEPT_S: Final = (0.5, 4.0, 15.0)
AFTER_STOP: Final = "judged in the life after a stop"
PLACES: Final = tuple(name for name in BOUNDARIES if not name.startswith("journal."))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of the state folder, and how far the journal had come."""

    folder: Path
    journal_id: str
    last_seq: int
    told: dict[int, bytes | None]


class World:
    """Everything, and the order in which it goes wrong."""

    def __init__(self, seed: int, folder: Path, theme: Theme | None, say: Say | None = None) -> None:
        self.seed = seed
        self.folder = folder
        self.rng = self._dice("story")
        self.rivals = Rivals(rng=self._dice("rivals"))
        self.theme = theme or self._draw_theme()
        self.truth = Truth(say)
        self.lives: list[Life] = []
        self.calm = False

    def _draw_theme(self) -> Theme:
        # with other dice: what is known of worlds by their numbers stays true of all others
        usual = self.rng.choice(THEMES)
        return TWO_DAEMONS if self.rivals.rng.random() < INSEPARABLE else usual

    def _dice(self, name: str) -> Random:
        return Random(f"{self.seed}:{name}")

    # ------------------------------------------------------------ the story

    async def play(self) -> None:
        context = copy_context()
        truth = self.truth
        self.tools = Tools(self._dice("tools"), truth, context)
        self.plane = Plane(self._dice("plane"), truth, context)
        delegates, goes_on, keeps = map(self._dice, ("delegation", "another run", "retention"))
        resends = self._dice("resends")
        person = Person(
            self.rng,
            truth,
            self.plane,
            self.tools,
            self._later,
            self.theme.tools,
            Whims(
                delegates=delegates if delegates.random() < DELEGATING and not self.theme.clone else None,
                goes_on=goes_on if goes_on.random() < GOING_ON else None,
                resends=resends if self.theme.resends or resends.random() < RESENDING else None,
            ),
        )
        truth.may_be_pruned = keeps.random() < FORGETTING
        self.tools.deeds = self.theme.deeds or self.tools.deeds
        self.plane.on_event = person.react
        self.network = Network(self._dice("network"), truth, self.plane, context)
        self.disk = Disk(self._dice("disk"))
        self.clocks = Clocks()
        self.context = context
        self.around = Around(
            folder=self.folder,
            token=self.folder.parent / "token",
            truth=truth,
            tools=self.tools,
            network=self.network,
            clocks=self.clocks,
            rng=self._dice("daemon"),
            ids=counting(),
            bold=self.rng.random() < 0.5,
            keeps_s=keeps.choice(KEPT_S) if truth.may_be_pruned else None,
        )
        person.give_orders()
        self._plan_faults()
        self._start()
        await asyncio.sleep(TROUBLE_S)
        self._heal()
        await self._be_judged()
        await self._stop()

    def _count(self, parked: int) -> None:
        self.truth.reached["dead letter"] += parked
        self.truth.fired["slow disk"] += self.disk.stalls

    def _later(self, after_s: float, act: Callable[..., None], *args: object) -> None:
        asyncio.get_running_loop().call_later(after_s, act, *args, context=self.context)

    # ------------------------------------------------------------ faults

    def _plan_faults(self) -> None:
        rng = self.rng
        self._crashes_left = rng.choice((0, 1, 1, 1, 2, 2, 3, 6))
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            self._later(rng.uniform(0.0, TROUBLE_S), self._cut)
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            self._later(rng.uniform(0.0, TROUBLE_S), self._fall_silent)
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            self._later(rng.uniform(0.0, TROUBLE_S), self._restart_plane)
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            self._later(rng.uniform(0.0, TROUBLE_S), self._set_clock)
        if rng.random() < 0.15:
            self._later(rng.uniform(0.0, TROUBLE_S), self._restart_politely)
        self._loses_disk = rng.random() < 0.05
        self._snapshot: Snapshot | None = None
        if self.theme.snapshot or rng.random() < 0.1:
            self._later(rng.uniform(2.0, TROUBLE_S / 2), self._take_snapshot)
            self._crashes_left = max(self._crashes_left, 2)
        self._later(OPERATOR_S, self._look_after)
        self._plan_rivals()

    def _plan_rivals(self) -> None:
        rng = self.rivals.rng
        if rng.random() < INTRUDING:
            self._later(rng.uniform(0.0, TROUBLE_S), self._intrude)
        if self.theme.clone or rng.random() < CLONED:
            self._later(rng.uniform(2.0, TROUBLE_S / 2), self._clone)

    def _cut(self) -> None:
        self.network.cut()

    def _fall_silent(self) -> None:
        if self.calm:
            return
        self.truth.fired["partition"] += 1
        self.network.fall_silent(self.rng.choice((0.5, 5.0, 15.0, 40.0)))

    def _restart_plane(self) -> None:
        if self.plane.is_up and not self.calm:
            self.plane.restart()
            self._later(self.rng.uniform(0.0, 10.0), self.plane.come_back)

    def _set_clock(self) -> None:
        if not self.calm:
            self.truth.fired["clock set"] += 1
            self.clocks.ahead_s += self.rng.choice((-300.0, -30.0, -5.0, 5.0, 30.0, 3_600.0))

    def _restart_politely(self) -> None:
        life = self.lives[-1]
        if life.serves and not self.rivals.any:
            self.truth.fired["stop"] += 1
            life.told_to_stop.set()
            self._later(STOP_S + 60.0, self._start_after, life)

    # ------------------------------------------------------------ lives

    def _start(self) -> None:
        if self.calm and self.lives and self.lives[-1].alive and not self.lives[-1].ended.is_set():
            return
        life = Life(len(self.lives) + 1, self.disk, self.around)
        life.on_death = lambda: self._bury(life)
        if self._crashes_left > 0 and not self.calm:
            self._condemn(life)
        self.lives.append(life)
        life.start()

    def _condemn(self, life: Life) -> None:
        """Say when a life dies: at any step, or where a step has just become durable."""
        rng = self.rng
        self._crashes_left -= 1
        if self.theme.place is not None and life.number == 1:
            life.dies_at_boundary = (self.theme.place, 2)
        elif rng.random() < 0.5:
            life.dies_at_boundary = (rng.choice(PLACES), rng.choice((1, 1, 1, 2, 3)))
        else:
            life.dies_at = int(2 ** rng.uniform(3.0, 11.0))
        self._later(rng.uniform(5.0, TROUBLE_S), self._kill, life)

    def _kill(self, life: Life) -> None:
        if life.alive and not life.ended.is_set() and not self.calm:
            life.alive = False
            self._bury(life)

    def _bury(self, life: Life) -> None:
        """A process is gone: what was on the disk stays, and the kernel closes what was open."""
        loop = asyncio.get_running_loop()
        self.truth.note(loop.time(), "dies", life.name, life.steps)
        self.truth.fired["crash"] += 1
        self.truth.fired["crash while starting"] += not life.ready
        self.truth.fired["second crash"] += life.number > 1
        self.rivals.withdraw()
        self._leave_disk(life)
        self.tools.process_died(life)
        wire = self.network.wire
        if wire is not None and wire.process is life:
            wire.process_died()
        self._machine_restarts()
        self._later(self.rng.choice((0.01, 0.2, 3.0, 20.0)), self._start_after, life)

    def _machine_restarts(self) -> None:
        if self.rng.random() < 0.15:
            self.truth.fired["machine restarted"] += 1
            self.clocks.boots += 1
            self.clocks.booted_at = asyncio.get_running_loop().time()

    def _start_after(self, life: Life) -> None:
        if self.lives[-1] is life:
            self._start()

    def _leave_disk(self, life: Life) -> None:
        """The next process finds the files as they are now; the locks of the dead one are gone."""
        state, left = self.folder / "state", self.folder / life.name
        if state.exists():
            state.rename(left)
            self._put_back(left, state)
        life.close()

    def _put_back(self, left: Path, state: Path) -> None:
        """What the next life finds: the files, an older copy of them, or nothing."""
        snapshot = self._snapshot
        if snapshot is not None and self.plane.stored.get(snapshot.journal_id, 0) > snapshot.last_seq:
            # one that the plane cannot tell from what it knows would go on unnoticed: not promised otherwise
            self._snapshot = None
            self.truth.fired["rolled back"] += 1
            self.truth.lose(snapshot.told)
            copy_folder(snapshot.folder, state)
        elif self._loses_disk:
            self._loses_disk = False
            self.truth.fired["disk lost"] += 1
            self.truth.lose({})
        else:
            copy_folder(left, state)

    def _take_snapshot(self) -> None:
        """Copy the files of a running daemon, as a snapshot of its machine would."""
        life = self.lives[-1]
        if life.serves and self.rivals.clone is None and not self.truth.cloned:
            self._snapshot = self._snap(life, self.folder / "snapshot")

    def _snap(self, life: Life, folder: Path) -> Snapshot:
        (last_seq,) = life.connections[-1].execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
        copy_folder(self.folder / "state", folder)
        return Snapshot(folder, self.plane.journal_id, last_seq, dict(self.truth.told))

    # ------------------------------------------------------------ two daemons

    def _intrude(self) -> None:
        """Somebody starts a second daemon where one lives."""
        life = self.lives[-1]
        if life.stays and not self.calm:
            self.rivals.intrude(self.around)

    def _clone(self) -> None:
        """The sandbox is copied as it runs. From here on its disk is what the two have made of it."""
        life = self.lives[-1]
        if self.calm or not life.serves or not self.plane.journal_id:
            return
        self.truth.cloned = True
        self._snapshot, self._loses_disk = None, False
        home = self.folder / "clone"
        home.mkdir()
        self._wake(self._snap(life, home / "state"))

    def _wake(self, snapshot: Snapshot) -> None:
        """The copy is started: at once, or when the plane knows that the history has gone on without it."""
        if self.calm:
            return
        if self.theme.clone or self.plane.stored.get(snapshot.journal_id, 0) > snapshot.last_seq:
            network = Network(self.rivals.rng, self.truth, self.plane, self.context)
            self.rivals.copy(replace(self.around, folder=snapshot.folder.parent, network=network))
        else:
            self._later(1.0, self._wake, snapshot)

    def _part(self) -> None:
        """One of two daemons goes; where that is the first one, the next life has the files of the other."""
        assert self.rivals.clone is not None, "there are two"
        known, first = self.plane.knows(self.rivals.clone.told), self.plane.knows(self.truth.told)
        clone = self.rivals.part(self.folder / "kept", is_known=known, is_first_known=first)
        if clone is None:
            return
        life = self.lives[-1]
        if life.alive and not life.ended.is_set():
            life.alive = False
            self._bury(life)
        remove_folder(self.folder / "state")
        (self.folder / "kept").rename(self.folder / "state")
        self.truth.lose(clone.told)

    def _look_after(self) -> None:
        """An operator looks at the daemon now and then, and lifts a fence."""
        life = self.lives[-1]
        if self.rivals.clone is not None:
            if self.rivals.is_time(life):
                self._part()
        elif life.serves and life.posture.fence is not None:
            life.unfence()
        self._later(OPERATOR_S, self._look_after)

    # ------------------------------------------------------------ the end

    def _heal(self) -> None:
        self.calm = self.tools.calm = True
        self.rivals.withdraw()
        if self.rivals.clone is not None:
            self._part()
        self.network.silent_until = 0.0
        self.disk.stall_s = 0.0
        self.plane.nacks, self.plane.loses_acks = 0.0, False
        if not self.plane.is_up:
            self.plane.come_back()
        life = self.lives[-1]
        life.dies_at, life.dies_at_boundary = None, None

    async def _be_judged(self) -> None:
        """Let the journal be judged once nothing happens any more, or when that should have been."""
        found = await self._found_at_rest()
        if found is not None:
            self.truth.judge(found)
            self.truth.reached[AFTER_STOP] += any(life.ended.is_set() for life in self.lives[-2:-1])

    async def _found_at_rest(self) -> Sequence[OperationRecord] | None:
        """Return what the journal says at rest; None where it should be, and nobody is there to ask."""
        ends = asyncio.get_running_loop().time() + REST_S
        while True:
            in_time, life = await self._come_to_rest(ends), self.lives[-1]
            if not life.stays or life.journal is None:
                return None
            last_seq = life.journal.statistics().last_seq
            found = await life.ask(records)
            # a disk may still be slow, and somebody want something before it has answered
            if not in_time or (last_seq == life.journal.statistics().last_seq and self._is_at_rest()):
                return found

    async def _come_to_rest(self, ends: float) -> bool:
        still = 0
        while still < 3:
            await asyncio.sleep(LOOK_S)
            still = still + 1 if self._is_at_rest() else 0
            if asyncio.get_running_loop().time() > ends:
                self.truth.blame("I4", f"no receipt in {REST_S:g} s for {self.plane.open_orders()}")
                return False
        return True

    def _is_at_rest(self) -> bool:
        life = self.lives[-1]
        # one that stops is followed by another, which has yet to say what it finds
        if self.plane.open_orders() or not life.stays or life.journal is None:
            return False
        statistics = life.journal.statistics()
        # under a fence nothing comes to its end: an operator lifts it soon
        return life.posture.fence is None and self.plane.has_everything(statistics.last_seq - statistics.base)

    async def _stop(self) -> None:
        self.truth.broken += [
            text for history in self.plane.histories.values() for text in history.violations
        ]
        life = self.lives[-1]
        if not life.stays:
            return
        self._count(await life.ask(dead_letters))
        life.told_to_stop.set()
        try:
            await asyncio.wait_for(life.ended.wait(), STOP_S + 60.0)
        except TimeoutError:
            self.truth.blame("hang", f"a stop takes longer than {STOP_S + 60.0:g} s")

    def verify(self) -> None:
        """Let the journal be looked at as `effectd verify --deep` does."""
        settings = JournalSettings(state_dir=self.folder / "state", runtime_dir=self.folder / "run")
        self.truth.broken += [
            str(item) for item in verify_file(settings, lambda _: None, now=BASE, deep=True)
        ]

    def close(self) -> None:
        """Close what dead processes have left open."""
        self.rivals.close()
        for life in self.lives:
            life.alive = False
            life.close()
