"""Lives of a journal, one of whose file calls is answered with an error. Part of the lane `errors`.

A life that was refused or failed may be followed by another one under the same error.
"""

import contextlib
import errno
import os
import random
import shutil
import signal
import socket
import threading
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from tests.faults import journal_life, notifier
from tests.faults.look import Answer, Looker
from tests.faults.notifier import ERRORS, Call, Supervisor
from tests.faults.promises import Promises, lines

HANG_S: Final = 20.0
"""When a life is killed."""
SLOW_S: Final = 10.0
"""What counts as a hang, unless a lock is refused for ever: SQLite then tries for ten seconds itself."""
CODES: Final = frozenset({0, 2, 70, 71})
STOPPING: Final = frozenset({"fsync", "fdatasync", "pwrite64"})
"""After an error of these, on the journal or its `-wal`, nobody goes on."""
ACTIONS: Final = 6
EARLIER: Final = 10**12
"""Added to the seeds of lives that others follow: one of the same seed would use their ids again."""
LIVES: Final = 6
"""Different lives: what many of them leave is the same journal, which is looked at deeply once."""
FOR_EVER: Final = 0.4
"""How often an error stays."""
KILLED_AT: Final = 12
BROKEN_MAX: Final = 60
WENT_ON: Final = "it went on after an error of the journal"
LOST: Final = " was told, and "
"""As `promises` says it: what was told, and is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is to happen."""

    call: str
    number: int
    """The n-th call of that kind, from 1."""
    error: int
    for_ever: bool

    def __str__(self) -> str:
        often = "for ever" if self.for_ever else "once"
        return f"{errno.errorcode[self.error]} at {self.call} {self.number} {often}"


@dataclass(slots=True)
class Trap:
    """Answers with the error where it is due, and remembers where that was."""

    fault: Fault | None
    passed: int = 0
    fired: list[Call] = field(default_factory=list[Call])

    @property
    def only(self) -> str:
        """The kind of call that it waits for; an empty text where it counts all."""
        return "" if self.fault is None else self.fault.call

    def __call__(self, call: Call) -> int:
        if self.fault is None or call.name != self.fault.call:
            return 0
        self.passed += 1
        if self.passed == self.fault.number or (self.fault.for_ever and self.passed > self.fault.number):
            self.fired.append(call)
            return self.fault.error
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A life that is over."""

    code: int | None
    """None: it hung, and was killed."""
    said: str
    calls: Sequence[Call]
    took_s: float


def life(root: Path, name: str, seed: int, judge: Trap, weakness: str | None = None) -> Ended:
    """Fork a life of a journal below `root`, and decide about its calls until it has ended."""
    began = monotonic()
    ours, theirs = socket.socketpair()
    output = os.memfd_create("output")
    pid = os.fork()
    if pid == 0:
        ours.close()
        _be_the_life(theirs, judge.only, output, root, name, seed, weakness)
    theirs.close()
    _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
    ours.close()
    supervisor = Supervisor(pid, listener, str(root), judge)
    hung = threading.Event()

    def kill() -> None:
        hung.set()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(HANG_S, kill)
    timer.start()
    supervisor.serve()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    timer.cancel()
    timer.join()
    with open(output, "rb") as file:  # noqa: PTH123 - it has no name
        file.seek(0)
        said = file.read().decode(errors="replace")
    return Ended(
        code=None if hung.is_set() else code, said=said, calls=supervisor.calls, took_s=monotonic() - began
    )


def _be_the_life(
    channel: socket.socket, only: str, output: int, root: Path, name: str, seed: int, weakness: str | None
) -> None:
    code = 1
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        notifier.submit(channel, only)
        code = journal_life.main([str(root), name, str(seed), *([weakness] if weakness else [])], ACTIONS)
    except BaseException:  # noqa: BLE001 - a forked copy must not go on as if it were its parent
        traceback.print_exc()
    finally:
        os._exit(code)


# ------------------------------------------------------------ one injection


@dataclass(slots=True)
class Tally:
    """What a worker did."""

    tried: int = 0
    lives: int = 0
    fired: Counter[str] = field(default_factory=Counter[str])
    reached: Counter[str] = field(default_factory=Counter[str])
    broken: list[str] = field(default_factory=list[str])
    slowest_s: float = 0.0
    hung: int = 0

    @property
    def injected(self) -> int:
        """How many errors were really there; one that stays counts once."""
        return self.fired["once"] + self.fired["for ever"]


@dataclass(slots=True)
class Worker:
    """One process of the lane."""

    folder: Path
    seed: int
    weakness: str | None = None
    tally: Tally = field(default_factory=Tally)
    counts: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    templates: dict[str, Path] = field(default_factory=dict[str, Path])
    promises: dict[str, Promises] = field(default_factory=dict[str, Promises])
    looker: Looker = field(init=False)
    patience: int = 1
    """How many locks may still be refused for ever: each of them takes ten seconds."""

    def __post_init__(self) -> None:
        self.looker = Looker(self.folder / "look")

    def work(self, until: float, target: int) -> Tally:
        """Inject until the time is over, or so many errors were injected."""
        chance = random.Random(self.seed)
        self.prepare()
        while monotonic() < until and self.tally.injected < target and len(self.tally.broken) < BROKEN_MAX:
            start = chance.choice(("new", "used", "used", "killed"))
            name = chance.choice(("plain", "plain", "plain", "histories"))
            call = chance.choice([call for call in ERRORS if self.counts[start][call]])
            fault = Fault(
                call=call,
                number=chance.randint(1, self.counts[start][call]),
                error=chance.choice(ERRORS[call]),
                for_ever=chance.random() < FOR_EVER and (call != "fcntl" or self.patience > 0),
            )
            self.patience -= call == "fcntl" and fault.for_ever
            self.one(start, name, fault, chance.randrange(LIVES))
        return self.tally

    def prepare(self) -> None:
        """Make what lives begin with: no journal, a used one, and one whose last life was killed."""
        self.looker.root.mkdir(mode=0o700)
        for start in ("new", "used", "killed"):
            root = self.folder / start
            root.mkdir(mode=0o700)
            (root / "backups").mkdir()
            self.promises[start] = Promises()
            if start != "new":
                shutil.copytree(self.folder / "new", root, dirs_exist_ok=True)
                judge = Trap(Fault(call="fdatasync", number=KILLED_AT, error=notifier.KILL, for_ever=False))
                ended = life(root, "plain", EARLIER + self.seed, judge if start == "killed" else Trap(None))
                self.promises[start] = lines(ended.said.splitlines(), Promises())
            self.templates[start] = root
            counted = life(self._copy(start), "plain", EARLIER + self.seed + 1, Trap(None))
            assert counted.code == 0, counted.said
            self.counts[start] = Counter(call.name for call in counted.calls)

    def _copy(self, start: str) -> Path:
        root = self.folder / "root"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.templates[start], root)
        return root

    def one(self, start: str, name: str, fault: Fault, seed: int) -> None:
        """Let one fault happen, and look at everything."""
        began, tally = monotonic(), self.tally
        root, trap = self._copy(start), Trap(fault)
        ended = life(root, name, seed, trap, self.weakness)
        tally.tried += 1
        tally.lives += 1
        tally.hung += ended.took_s > SLOW_S and not (fault.call == "fcntl" and fault.for_ever)
        wrong = judged(ended, trap)
        told = lines(ended.said.splitlines(), self.promises[start])
        if trap.fired:
            tally.fired[errno.errorcode[fault.error]] += 1
            tally.fired["for ever" if fault.for_ever else "once"] += 1
            tally.reached[f"exit code {ended.code}"] += 1
            if fault.for_ever and ended.code:
                again = Trap(Fault(call=fault.call, number=1, error=fault.error, for_ever=True))
                second = life(root, name, seed + 1, again, self.weakness)
                tally.lives += 1
                tally.reached["a second life under the same error"] += bool(again.fired)
                wrong += [f"second life: {text}" for text in judged(second, again)]
                told = lines(second.said.splitlines(), told)
        wrong += told.broken(self._look(root))
        tally.slowest_s = max(tally.slowest_s, monotonic() - began)
        if wrong:
            place = f"{fault} ({[f'{call.name} {call.path}' for call in trap.fired[:2]]})"
            tally.broken.append(f"{start} journal, {name}, life {seed}, {place}: {'; '.join(wrong)[:900]}")

    def _look(self, root: Path) -> Answer:
        answer = self.looker.look_at(root)
        self.tally.reached["a new generation"] += any((root / "state").glob("journal-*.db"))
        return answer


def judged(ended: Ended, trap: Trap) -> list[str]:
    """What is wrong with how a life ended."""
    if ended.code is None:
        return [f"it hung for {HANG_S:g} s"]
    if ended.code not in CODES:
        return [f"exit code {ended.code}: {ended.said[-700:]}"]
    if ended.code == 0 and went_on(trap):
        return [WENT_ON]
    return []


def went_on(trap: Trap) -> bool:
    """Whether an error was one after which a process must not end as if nothing had been."""
    return any(call.name in STOPPING and _is_journal(call.path) for call in trap.fired)


def _is_journal(path: str) -> bool:
    return path.startswith("state/") and path.endswith((".db", ".db-wal"))


# ------------------------------------------------------------ for the lane


def work(folder: Path, seed: int, end: float, target: int) -> Tally:
    """Inject until `end` of the monotonic clock, or until so many errors were injected."""
    folder.mkdir(mode=0o700)
    return Worker(folder, seed).work(end, target)


def control(folder: Path, seed: int) -> Tally:
    """Take away that a failed commit stops everything: it must be noticed, by what was told of it."""
    folder.mkdir(mode=0o700)
    worker = Worker(folder, seed, weakness="verdict_from_memory")
    worker.prepare()
    for number in range(1, 30):
        worker.one(
            "used", "plain", Fault(call="fdatasync", number=number, error=errno.EIO, for_ever=False), seed + 7
        )
        if noticed(worker.tally):
            break
    return worker.tally


def noticed(found: Tally) -> bool:
    """Whether what is broken is that somebody went on, or what was told is not there: not any end at all."""
    return any(WENT_ON in text or LOST in text for text in found.broken)
