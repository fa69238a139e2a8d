"""What is kept of a program's output, and what it is given as input."""

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import Answered, Report, Silence
from driver.providers.command.settings import Program
from tests.driver.providers.command.stage import DEADLINE_S, STOP, Gate, answer, settings, sh, staged

pytestmark = pytest.mark.anyio

LIMIT = 1_000
CAT = Program.declared(["cat"], stdin="=arguments.input")


def limited(bytes_max: int = LIMIT) -> dict[str, Program]:
    """Return the tool `small`, which keeps little of its output."""
    return {"small": Program.declared("=arguments.argv", output_bytes_max=bytes_max)}


async def test_output_beyond_the_limit_is_cut_and_flagged(tmp_path: Path) -> None:
    """Too much output is no failure: its beginning is kept, and the flag says that there was more."""
    async with staged(settings(tmp_path, limited())) as stage:
        result = answer(await stage.run(sh("head -c 5000 /dev/zero | tr '\\0' a; echo b >&2"), tool="small"))
    assert result["exit_code"] == 0
    assert result["stdout"] == "a" * LIMIT
    assert (result["stdout_truncated"], result["stderr_truncated"]) == (True, False)
    assert result["stderr"] == "b\n"


async def test_output_of_exactly_the_limit_is_whole(tmp_path: Path) -> None:
    """The flag is for what is missing."""
    async with staged(settings(tmp_path, limited())) as stage:
        result = answer(await stage.run(sh(f"head -c {LIMIT} /dev/zero >&2"), tool="small"))
    assert result["stderr"] == "\0" * LIMIT
    assert result["stderr_truncated"] is False


async def test_a_flood_costs_neither_memory_nor_disk(tmp_path: Path) -> None:
    """A program that writes 100 MB to each output is never blocked, and its shim stays small."""
    gate = Gate(tmp_path)
    script = f"head -c 100000000 /dev/zero & head -c 100000000 /dev/zero >&2; wait; {STOP}"
    found: list[Report] = []
    async with staged(settings(tmp_path, limited(65_536))) as stage:
        call = stage.call(sh(script, *gate.paths), tool="small", timeout_s=60)

        async def dispatch() -> None:
            found.append(await stage.dispatch(call))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dispatch)
            await gate.reached()
            peak_kb = await anyio.to_thread.run_sync(_peak_kb, (await stage.started(call)).pid)
            kept = await anyio.to_thread.run_sync(_size, stage.place(call).folder)
            assert peak_kb < 24_000
            assert kept < 2 * 65_536 + 16_384
            await gate.open()
    result = answer(found[0])
    assert result["stdout_truncated"]
    assert result["stderr_truncated"]


def _peak_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


async def test_invalid_utf8_is_replaced_and_flagged(tmp_path: Path) -> None:
    """A result is text: what is none is replaced, and the flag says so, for that output alone."""
    async with staged(settings(tmp_path)) as stage:
        result = answer(await stage.run(sh("printf 'a\\377\\303b'; printf ok >&2")))
    assert result["stdout"] == "a\ufffd\ufffdb"
    assert (result["stdout_invalid_utf8"], result["stderr_invalid_utf8"]) == (True, False)


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
async def test_a_character_cut_by_the_limit_is_left_out(tmp_path: Path, limit: int) -> None:
    """A limit that falls within a character makes valid output shorter, and not invalid."""
    async with staged(settings(tmp_path, limited(limit))) as stage:
        result = answer(await stage.run(sh("printf 'h€llo'"), tool="small"))
    assert result["stdout"] == ("h€" if limit == 4 else "h")
    assert result["stdout_truncated"]
    assert not result["stdout_invalid_utf8"]


async def test_a_half_character_at_the_end_is_invalid(tmp_path: Path) -> None:
    """Output that ends within a character by itself is invalid."""
    async with staged(settings(tmp_path)) as stage:
        result = answer(await stage.run(sh("printf 'h\\342\\202'")))
    assert result["stdout"] == "h\ufffd"
    assert result["stdout_invalid_utf8"]


async def test_the_last_words_are_kept(tmp_path: Path) -> None:
    """What a background process writes shortly after the program's end belongs to the output."""
    async with staged(settings(tmp_path)) as stage:
        result = answer(await stage.run(sh("(read line < /dev/null; echo last) & exit 0")))
    assert result["stdout"] == "last\n"
    assert result["processes_ended"] == 0


async def test_without_stdin_there_is_none(tmp_path: Path) -> None:
    """A program that reads its input meets the end at once, and never the daemon's own."""
    async with staged(settings(tmp_path, {"cat": Program.declared(["cat"])})) as stage:
        assert answer(await stage.run({}, tool="cat"))["stdout"] == ""


async def test_stdin_is_text_or_json(tmp_path: Path) -> None:
    """A string is written as it is; any other value as JSON; and an expression may yield either."""
    async with staged(settings(tmp_path, {"cat": CAT})) as stage:
        assert answer(await stage.run({"input": "a\n€"}, tool="cat"))["stdout"] == "a\n€"
        assert answer(await stage.run({"input": {"b": [1, "€"]}}, tool="cat"))["stdout"] == '{"b":[1,"€"]}'
        assert answer(await stage.run({}, tool="cat"))["stdout"] == ""


async def test_large_stdin_and_output_do_not_deadlock(tmp_path: Path) -> None:
    """A program may write all it likes before it has read its input, and the other way round."""
    programs = {"cat": Program.declared(["cat"], stdin="=arguments.input", output_bytes_max=8_000_000)}
    text = "0123456789abcde\n" * 250_000
    async with staged(settings(tmp_path, programs)) as stage:
        assert answer(await stage.run({"input": text}, tool="cat"))["stdout"] == text


async def test_a_full_disk_cuts_the_output_and_keeps_the_outcome(tmp_path: Path) -> None:
    """Space for the record is set aside at the start, so a disk that fills up loses output only."""
    with _small_disk(tmp_path / "spool"):
        async with staged(settings(tmp_path)) as stage:
            report = await stage.run(sh("head -c 900000 /dev/zero; exit 4"))
    assert isinstance(report, Answered)
    assert report.result["exit_code"] == 4
    assert report.result["stdout_truncated"]


@contextmanager
def _small_disk(folder: Path) -> Generator[None]:
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], check=False)
    if mounted.returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


async def test_an_interrupted_flood_is_ended(tmp_path: Path) -> None:
    """A program that writes without end is ended at its deadline like any other."""
    async with staged(settings(tmp_path, limited())) as stage:
        report = await stage.run({"argv": ["cat", "/dev/zero"]}, tool="small", timeout_s=DEADLINE_S)
    assert isinstance(report, Silence)
    assert report.cause == "deadline"
