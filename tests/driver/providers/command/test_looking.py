"""A contract's `evidence`: what a reading command printed, bounded, and nothing where it could not."""

import os
import sys
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import ToolCall
from driver.providers.command.looking import PRINTED_BYTES_MAX
from driver.providers.command.looking import look as look_by
from driver.providers.command.settings import CommandSettings, Program
from driver.providers.command.zygote import Zygote
from store.records import JsonObject, OperationId

pytestmark = pytest.mark.anyio

PATIENCE_S = 60
BOUNDS_S = (1.0, 5.0, 30.0)
"""The next one where a program was not there yet when it was killed, on a busy machine."""


def settings(folder: Path, *evidence: str, cwd: str | None = None) -> CommandSettings:
    """A provider with one tool, whose reading command this is."""
    program = Program.declared(["true"], cwd=cwd, evidence=evidence)
    return CommandSettings(
        name="shell",
        programs={"run": program},
        spool=folder / "spool",
        cwd=folder,
        roots=(folder,),
        env={"MARK": "seen"},
    )


def calling(**arguments: str) -> ToolCall:
    """A call of the tool."""
    given: JsonObject = dict(arguments)
    return ToolCall(
        operation_id=OperationId("op_" + "0" * 32),
        attempt=1,
        tool="run",
        arguments=given,
        key=None,
        timeout_s=1,
    )


async def look(declared: CommandSettings, call: ToolCall) -> str | None:
    """Look with a zygote that ends with the look."""
    zygote = Zygote()
    try:
        return await look_by(declared, call, zygote)
    finally:
        await anyio.to_thread.run_sync(zygote.close)


def python(code: str) -> tuple[str, ...]:
    """A command line that runs this."""
    return (sys.executable, "-I", "-S", "-c", code)


async def test_it_is_filled_in_and_placed_as_the_call_is(tmp_path: Path) -> None:
    """Its words are templates, its folder is the call's, its environment the provider's."""
    (tmp_path / "inner").mkdir()
    code = "import os, sys; print(sys.argv[1], os.getcwd(), os.environ['MARK'])"
    declared = settings(tmp_path, *python(code), "=arguments.branch", cwd="=arguments.folder")
    text = await look(declared, calling(branch="main", folder="inner"))
    assert text == f"main {tmp_path / 'inner'} seen\n"


async def test_both_outputs_and_an_exit_code_are_a_part_of_it(tmp_path: Path) -> None:
    """What failed before and after alike is the same, and says so."""
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"
    assert await look(settings(tmp_path, *python(code)), calling()) == "out\nerr\n\n[exit code 3]"


async def test_what_it_prints_is_bounded_and_text(tmp_path: Path) -> None:
    """A flood is read to its end, and dropped; bytes that are no text become a mark."""
    code = f"import sys; sys.stdout.buffer.write(b'\\xff\\x00' + b'x' * {PRINTED_BYTES_MAX * 4})"
    text = await look(settings(tmp_path, *python(code)), calling())
    assert text is not None
    assert text.startswith("\ufffd\ufffdx")
    assert text.endswith("\n[cut]")
    assert len(text) < PRINTED_BYTES_MAX + 20


@pytest.mark.parametrize("evidence", [("/nowhere/at-all",), ("=arguments.missing",), ("=arguments",)])
async def test_what_cannot_run_saw_nothing(tmp_path: Path, evidence: tuple[str, ...]) -> None:
    """A program that is not there, and words that these arguments do not fill."""
    assert await look(settings(tmp_path, *evidence), calling()) is None


async def test_one_that_hangs_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call waits for its reading command no longer than the bound."""
    pids = tmp_path / "pids"
    pids.touch()
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(600)"
    )
    found: list[str] = []
    for bound_s in BOUNDS_S:
        monkeypatch.setattr("driver.providers.command.looking.LOOK_S", bound_s)
        assert await look(settings(tmp_path, *python(code)), calling()) is None
        if found := (await anyio.Path(pids).read_text()).split():
            break
    assert len(found) == 2
    for pid in map(int, found):
        await _end_of(pid)


async def _end_of(pid: int) -> None:
    """Return once no such process runs."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with anyio.fail_after(PATIENCE_S):
            await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)
