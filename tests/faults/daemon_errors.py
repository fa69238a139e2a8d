"""A daemon with a plane and a provider, one of whose file calls is answered with an error. Part of `errors`.

Whatever it was: it answers all that it accepted, or ends with a code that the documentation names; the next
daemon, without the error, answers the rest, and all adds up (I1 to I4): each effect has its intent, nothing
was executed twice, no receipt lies or contradicts another, and the journal is whole.
"""

import errno
import random
import socket
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

import anyio
from anyio import to_thread

from tests.faults.balance import Balance
from tests.faults.journal_errors import BROKEN_MAX, CODES, WENT_ON, Fault, Trap, went_on
from tests.faults.lane import Time
from tests.faults.notifier import ERRORS, Call, Supervisor
from tests.system.audit import must_hold
from tests.system.plane import ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Gone, Life, Sandbox, sandbox
from tests.system.zygote import Zygote

COMMANDS: Final = 6
PATIENCE_S: Final = 20.0
WANTED: Final = ("daemon: exit code 70", "daemon: exit code 2", "daemon: effects")
CHANNEL: Final = "EFFECTD_FAULTS_CHANNEL"
ONLY: Final = "EFFECTD_FAULTS_CALL"


def work(seed: int, time: Time, target: int) -> Balance:
    """Inject until the time is over, or until so many errors were injected."""
    return anyio.run(_work, seed, time, target)


async def _work(seed: int, time: Time, target: int) -> Balance:
    tally, chance = Balance(), random.Random(seed)
    zygote = Zygote()
    try:
        counts = await _counted(zygote)
        while tally.injected < target and len(tally.broken) < BROKEN_MAX:
            if not time.is_left(is_missing=any(not tally.reached[state] for state in WANTED)):
                break
            name = chance.choice([name for name in ERRORS if counts[name]])
            fault = Fault(
                call=name,
                number=chance.randint(1, counts[name]),
                error=chance.choice(ERRORS[name]),
                for_ever=name != "fcntl" and chance.random() < 0.4,
            )
            began = monotonic()
            await _one(zygote, fault, tally)
            tally.slowest_s = max(tally.slowest_s, monotonic() - began)
    finally:
        zygote.close()
    return tally


async def _counted(zygote: Zygote) -> Counter[str]:
    """How many calls of each kind a life makes to which nothing happens."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        calls, code, _ = await _life(made, plane, Trap(None))
        assert code == 0, made.lives[0].text
        return Counter(call.name for call in calls)


async def _one(zygote: Zygote, fault: Fault, tally: Balance) -> None:
    wrong: list[str] = []
    trap = Trap(fault)
    try:
        async with scripted_plane() as plane, sandbox(zygote, plane) as made:
            _, code, hung = await _life(made, plane, trap)
            tally.tried += 1
            tally.lives += 2
            if trap.fired:
                tally.fired[errno.errorcode[fault.error]] += 1
                tally.fired["for ever" if fault.for_ever else "once"] += 1
                tally.reached[f"daemon: exit code {code}"] += 1
            tally.hung += hung
            if hung:
                wrong.append(f"it answered nothing for {PATIENCE_S:g} s: {made.lives[0].text[-1500:]}")
            if code not in CODES:
                wrong.append(f"exit code {code}: {made.lives[0].text[-1500:]}")
            if code == 0 and went_on(trap):
                wrong.append(WENT_ON)
            try:
                await _afterwards(made, plane)
            finally:
                tally.count_in(made, plane)
            tally.reached["daemon: effects"] += len(made.effects())
    except* AssertionError as group:
        wrong += [str(error)[:1500] for error in group.exceptions]
    if wrong:
        place = f"{fault} ({[f'{call.name} {call.path}' for call in trap.fired[:2]]})"
        tally.broken.append(f"a daemon, {place}: {'; '.join(wrong)}")


async def _life(made: Sandbox, plane: ScriptedPlane, trap: Trap) -> tuple[list[Call], int, bool]:
    """Let a daemon serve until all is answered, or it has ended; return its calls, its code, if it hung."""
    path = made.root / "channel"
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
        life = made.start(patch="asks_about_calls", **{CHANNEL: str(path), ONLY: trap.only})
        supervisor = await to_thread.run_sync(_admitted, door, life, made.root, trap)
    hung = False
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(to_thread.run_sync, supervisor.serve)
        hung = not await _served(plane, life)
        if hung:
            await life.kill()
        elif not life.ended.is_set():
            # all is answered, and yet it may end by the error before it has told that it is ready
            with suppress(Gone):
                await life.stop()
        await made.quiet()
    return supervisor.calls, await life.exit_code(), hung


def _admitted(door: socket.socket, life: Life, root: Path, trap: Trap) -> Supervisor:
    channel, _ = door.accept()
    with channel:
        _, (listener,), _, _ = socket.recv_fds(channel, 1, 1)
    return Supervisor(life.pid, listener, str(root), trap)


async def _served(plane: ScriptedPlane, life: Life) -> bool:
    """Give the commands; return whether all were answered, or the daemon ended, within its time."""
    done = False

    async def ask(cancel: anyio.CancelScope) -> None:
        nonlocal done
        for number in range(COMMANDS):
            tool = "counter/fail" if number == 1 else "counter/count"
            await plane.give(call(f"cmd-{number}", tool, n=number))
        await plane.answered()
        done = True
        cancel.cancel()

    async def mourn(cancel: anyio.CancelScope) -> None:
        nonlocal done
        await life.ended.wait()
        done = True
        cancel.cancel()

    with anyio.move_on_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(ask, tasks.cancel_scope))
            tasks.start_soon(partial(mourn, tasks.cancel_scope))
    return done


async def _afterwards(made: Sandbox, plane: ScriptedPlane) -> None:
    for number in range(COMMANDS):
        if f"cmd-{number}" not in plane.orders:
            await plane.give(call(f"cmd-{number}", n=number))
    welcomed = len(plane.hellos)
    life = made.start()
    await plane.until(lambda: len(plane.hellos) > welcomed)
    await plane.connected()
    await plane.answered()
    await plane.redeliver(*plane.orders)
    assert await life.stop() == 0, life.text[-1500:]
    verified = await made.command("verify", "--deep")
    assert verified.code == 0, verified.text
    await must_hold(made)
    plane.check()
