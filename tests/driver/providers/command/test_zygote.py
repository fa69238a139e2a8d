"""The process that forks shims: it may die at any time, and it dies with its daemon."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import NotSent, Report
from driver.providers.command.spool import Spool
from tests.driver.providers.command.stage import STOP, Gate, Stage, answer, settings, sh, staged
from tests.driver.providers.command.test_readoption import gone, life

pytestmark = pytest.mark.anyio

ZYGOTE = """import sys
from driver.providers.command.shim.zygote import main
sys.stdin.readline()
main(int(sys.argv[1]))
"""


async def zygote(stage: Stage) -> int:
    """Return the process id of the provider's zygote, which is there afterwards."""
    assert await stage.provider.prepare(stage.call(sh("true"))) is None
    process = stage.provider._zygote._process
    assert process is not None
    return process.pid


async def parent(pid: int) -> int:
    """Return who started a process."""
    stat = await anyio.Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


async def test_programs_survive_their_zygote(tmp_path: Path) -> None:
    """A killed zygote ends no program, and the next call gets another."""
    gate = Gate(tmp_path)
    found: list[Report] = []
    async with staged(settings(tmp_path)) as stage:

        async def dispatch() -> None:
            found.append(await stage.dispatch(stage.call(sh(f"{STOP} echo done", *gate.paths))))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dispatch)
            await gate.reached()
            killed = await zygote(stage)
            os.kill(killed, signal.SIGKILL)
            await gone(killed)
            assert answer(await stage.run(sh("echo next")))["stdout"] == "next\n"
            await gate.open()
    assert answer(found[0])["stdout"] == "done\n"


async def test_without_a_zygote_a_call_is_not_ready(tmp_path: Path) -> None:
    """While there is none, a call is prepared first: a crash in a slow start leaves no `unknown` behind."""
    async with staged(settings(tmp_path)) as stage:
        call = stage.call(sh("true"))
        assert await stage.provider.prepare(call) is None
        assert stage.provider.ready(call)
        await anyio.to_thread.run_sync(stage.provider._zygote.close)
        assert not stage.provider.ready(call)
        assert await stage.provider.prepare(call) is None
        assert stage.provider.ready(call)


async def test_a_stopped_zygote_refuses_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call whose shim never comes executes nothing, and the calls behind it get a new zygote."""
    monkeypatch.setattr("driver.providers.command.tether.READY_S", 0.2)
    monkeypatch.setattr("driver.providers.command.zygote.END_S", 0.1)
    async with staged(settings(tmp_path)) as stage:
        os.kill(await zygote(stage), signal.SIGSTOP)
        refused = await stage.run(sh(f"touch {tmp_path}/effect"))
        monkeypatch.undo()
        assert answer(await stage.run(sh("echo next")))["stdout"] == "next\n"
    assert isinstance(refused, NotSent)
    assert refused.reason == "spawn_failed"
    assert not (tmp_path / "effect").exists()


async def test_a_zygote_ends_with_its_daemon(tmp_path: Path) -> None:
    """After SIGKILL of the daemon, only the shim is left of it."""
    gate = Gate(tmp_path)
    async with life(tmp_path, sh(STOP, *gate.paths)) as first:
        await gate.reached()
        shim = await first.shim()
        of_shim = await parent(shim)
        assert await parent(of_shim) == first.process.pid
        await first.kill()
        await gone(of_shim)
        assert await parent(shim) != of_shim
        await gate.open()
        await gone(shim)
        await anyio.to_thread.run_sync(Spool(tmp_path / "spool").tidy, ())
    assert not list((tmp_path / "spool").iterdir())


async def test_a_zygote_of_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an upgrade under way, calls say that the daemon must be restarted, and execute nothing."""
    monkeypatch.setattr("driver.providers.command.zygote.HELLO", b"effectd-zygote 0")
    async with staged(settings(tmp_path)) as stage:
        refused = await stage.provider.prepare(stage.call(sh("true")))
        assert await stage.run(sh("true")) == refused
    assert isinstance(refused, NotSent)
    assert "restart" in refused.message


async def test_a_zygote_whose_daemon_died_at_once_ends_without_a_word() -> None:
    """Killed before it read the greeting, or before there was one: nothing of that is an error to report."""
    greeted, silent = (socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
    for daemons, zygotes in (greeted, silent):
        with zygotes:
            process = await anyio.open_process(
                [
                    sys.executable,
                    "-c",
                    ZYGOTE,
                    str(zygotes.fileno()),
                ],
                pass_fds=(zygotes.fileno(),),
                stdout=subprocess.DEVNULL,
            )
        async with process:
            assert process.stdin is not None
            assert process.stderr is not None
            if daemons is silent[0]:
                daemons.close()
            await process.stdin.send(b"\n")
            if daemons is greeted[0]:
                await anyio.wait_readable(daemons)
                daemons.close()
            said = b"".join([piece async for piece in process.stderr])
            assert (await process.wait(), said) == (0, b"")
