"""What a program can get at: its folder, its environment, and nothing of the daemon's."""

import json
import os
import sys
from pathlib import Path
from typing import Final

import pytest

from driver.core.attempts import NotSent, Phase, Report
from driver.providers.command.launch import fill, locate
from driver.providers.command.provider import CommandProvider
from driver.providers.command.settings import Program
from driver.providers.environment import INHERITED
from store.records import JsonObject
from tests.driver.providers.command.stage import Stage, answer, settings, sh, staged

pytestmark = pytest.mark.anyio  # of the coroutines

PWD = {"pwd": Program.declared(["pwd", "-P"], cwd="=arguments.folder")}


def python(expression: str) -> JsonObject:
    """Return the arguments of `run` for a program that prints what an expression yields."""
    code = f"import json, os; print(json.dumps({expression}))"
    return {"argv": [sys.executable, "-I", "-S", "-c", code]}


def refused(report: Report) -> str:
    """Return the message of a call that was refused for its arguments."""
    assert isinstance(report, NotSent), report
    assert report.reason == "invalid_arguments"
    return report.message


async def test_a_folder_within_the_roots_is_used(tmp_path: Path) -> None:
    """`cwd` may be relative to the provider's own folder, or absolute, or a link that stays inside."""
    chosen = settings(tmp_path, PWD)
    inside = tmp_path / "work" / "a" / "b"
    inside.mkdir(parents=True)
    (tmp_path / "work" / "link").symlink_to(inside)
    async with staged(chosen) as stage:
        for folder in ("a/b", str(inside), "link", "a/../a/b"):
            assert answer(await stage.run({"folder": folder}, tool="pwd"))["stdout"] == f"{inside}\n"


async def test_without_a_folder_it_is_the_providers(tmp_path: Path) -> None:
    """A tool that names no folder runs in the provider's."""
    async with staged(settings(tmp_path)) as stage:
        assert answer(await stage.run(sh("pwd -P")))["stdout"] == f"{tmp_path}/work\n"


@pytest.mark.parametrize("folder", ["..", "/", "link", "a/../..", "link/..", "nothing/.."])
async def test_a_folder_outside_the_roots_is_refused(tmp_path: Path, folder: str) -> None:
    """No way of writing a path, and no link, leads out of the declared roots."""
    chosen = settings(tmp_path, PWD)
    (tmp_path / "work" / "a").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "work" / "link").symlink_to(tmp_path / "outside")
    async with staged(chosen) as stage:
        call = stage.call({"folder": folder}, tool="pwd")
        assert not stage.provider.ready(call)
        refusal = await stage.provider.prepare(call)
        assert isinstance(refusal, NotSent)
        refused(refusal)
        refused(await stage.dispatch(call))
        assert stage.phases == [Phase.CONNECTING]
    assert not list((tmp_path / "spool").glob("*"))


async def test_a_root_that_begins_like_another_folder(tmp_path: Path) -> None:
    """`/a/work-too` is not within `/a/work`."""
    chosen = settings(tmp_path, PWD)
    (tmp_path / "work-too").mkdir()
    async with staged(chosen) as stage:
        message = refused(await stage.run({"folder": str(tmp_path / "work-too")}, tool="pwd"))
    assert "outside the declared roots" in message


async def test_a_root_may_be_a_link(tmp_path: Path) -> None:
    """Roots are compared by where they lead, as working folders are."""
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")
    async with staged(settings(tmp_path, PWD, cwd=tmp_path / "root", roots=[tmp_path / "root"])) as stage:
        assert answer(await stage.run({"folder": "."}, tool="pwd"))["stdout"] == f"{tmp_path}/real\n"


@pytest.mark.parametrize("folder", ["missing", "file", 7, None, "a\0b"])
async def test_what_is_no_folder_is_refused(tmp_path: Path, folder: str | None) -> None:
    """A working folder must be there, and be one."""
    chosen = settings(tmp_path, PWD)
    (tmp_path / "work" / "file").touch()
    async with staged(chosen) as stage:
        refused(await stage.run({"folder": folder}, tool="pwd"))


def test_a_link_swapped_after_the_look_changes_nothing(tmp_path: Path) -> None:
    """What is handed to the program is the folder that was looked at, wherever its name leads by then."""
    chosen = settings(tmp_path, PWD)
    (tmp_path / "work" / "good").mkdir()
    (tmp_path / "outside").mkdir()
    name = tmp_path / "work" / "name"
    name.symlink_to("good")
    call = Stage(CommandProvider(chosen), chosen).call({"folder": "name"}, tool="pwd")
    launch = locate(chosen, fill(chosen, call))
    name.unlink()
    name.symlink_to(tmp_path / "outside")
    try:
        assert Path(f"/proc/self/fd/{launch.folder}").readlink() == tmp_path / "work" / "good"
    finally:
        launch.close()


async def test_the_environment_is_scrubbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program sees the usual variables and what is declared, and none of the daemon's others."""
    monkeypatch.setenv("EFFECTD_TOKEN", "secret")
    (tmp_path / "token").write_text("from-a-file\n")
    chosen = settings(
        tmp_path, env={"HOME": "/nowhere", "DECLARED": "=literal"}, env_files={"TOKEN": tmp_path / "token"}
    )
    async with staged(chosen) as stage:
        result = answer(await stage.run(python("dict(os.environ)")))
    found = json.loads(str(result["stdout"]))
    expected = {name: os.environ[name] for name in INHERITED if name in os.environ}
    found.pop("LC_CTYPE", None)  # which CPython sets itself where there is no locale
    assert found == expected | {"HOME": "/nowhere", "DECLARED": "=literal", "TOKEN": "from-a-file"}


async def test_environment_files_are_read_at_each_call(tmp_path: Path) -> None:
    """A rotated secret is picked up; one that cannot be read refuses the call."""
    token = tmp_path / "token"
    token.write_text("one")
    async with staged(settings(tmp_path, env_files={"TOKEN": token})) as stage:
        assert answer(await stage.run(sh("echo $TOKEN")))["stdout"] == "one\n"
        token.write_text("two")
        assert answer(await stage.run(sh("echo $TOKEN")))["stdout"] == "two\n"
        token.unlink()
        report = await stage.run(sh("echo $TOKEN"))
    assert isinstance(report, NotSent)
    assert report.reason == "spawn_failed"
    assert "env_files.TOKEN" in report.message


async def test_declared_path_finds_the_program(tmp_path: Path) -> None:
    """The program is looked for on the PATH that it will see."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "hello").write_text("#!/bin/sh\necho $0\n")
    (folder / "hello").chmod(0o700)
    async with staged(settings(tmp_path, env={"PATH": f"{folder}:/usr/bin:/bin"})) as stage:
        assert answer(await stage.run({"argv": ["hello"]}))["stdout"] == f"{folder}/hello\n"


async def test_no_secret_stands_in_the_shims_own_memory_files(tmp_path: Path) -> None:
    """Of the shim, /proc shows neither the program's words nor its environment."""
    chosen = settings(tmp_path, env={"TOKEN": "a-secret-value"})
    look = sh('cat /proc/$PPID/environ /proc/$PPID/cmdline | tr "\\0" "\\n"', "a-secret-word")
    async with staged(chosen) as stage:
        seen = str(answer(await stage.run(look))["stdout"])
    assert "zygote" in seen
    assert "a-secret-value" not in seen
    assert "a-secret-word" not in seen


async def test_nothing_is_inherited_but_the_three_descriptors(tmp_path: Path) -> None:
    """No descriptor of the daemon or the shim reaches the program."""
    async with staged(settings(tmp_path)) as stage:
        result = answer(await stage.run(sh("exec ls -l /proc/self/fd")))
    numbers = [line.split()[8] for line in str(result["stdout"]).splitlines() if " -> " in line]
    assert sorted(numbers) == ["0", "1", "2", "3"]  # the fourth is what `ls` reads


C_LIBRARYS: Final = 0b11 << 31


async def test_signals_are_as_programs_expect_them(tmp_path: Path) -> None:
    """Nothing is ignored, blocked or handled that an interpreter or the daemon had set.

    Signals 32 and 33 are the C library's own: no program can set them, and they are inherited as they are.
    """
    async with staged(settings(tmp_path)) as stage:
        result = answer(await stage.run(sh("grep -E 'SigBlk|SigIgn' /proc/self/status")))
    masks = [int(line.split()[1], 16) for line in str(result["stdout"]).splitlines()]
    assert [mask & ~C_LIBRARYS for mask in masks] == [0, 0]


async def test_the_program_leads_a_session_without_a_terminal(tmp_path: Path) -> None:
    """A program cannot ask anybody anything, and signals to the daemon's group do not reach it."""
    async with staged(settings(tmp_path)) as stage:
        result = answer(await stage.run(python("[os.getpid() == os.getsid(0) == os.getpgid(0)]")))
    assert json.loads(str(result["stdout"])) == [True]
