"""`effectd check --connect --selftest`: a probe that cannot tell what happened from what did not is found.

The provider is a real program that greps in a ledger. The journal is a real one, written by the engine, and
is read from its file and over the socket.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio import to_thread
from click.testing import CliRunner, Result

from driver.cli.main import main
from driver.core.attempts import Answered
from driver.core.contracts import Contract
from driver.core.redaction import Redaction
from driver.local.server import serve_local
from driver.local.settings import LocalSettings
from tests.driver.engine.rig import RUN, Rig, ScriptedProvider, call, command, engine
from tests.driver.local.world import World

pytestmark = pytest.mark.anyio

ACT: Final = Contract(declared=True)
HONEST: Final = 'grep -c -- "$1" ledger || true'
"""How often the key stands in the ledger."""


def config(folder: Path, script: str, *, arguments: str = '{ key = "=key" }', more: str = "") -> Path:
    """A provider whose tool `find` runs `script` with the probe's `key`, in the test's folder."""
    (folder / "ledger").touch()
    file = folder / "effectd.toml"
    file.write_text(
        f"""
[driver]
state_dir = "state"
runtime_dir = "run"
{more}
[providers.tools]
kind = "command"
roots = [{json.dumps(str(folder))}]
cwd = {json.dumps(str(folder))}

[providers.tools.tools.act]
argv = ["true"]

[providers.tools.tools.act.probe]
tool = "find"
arguments = {arguments}
matches = "to_number(result.stdout)"

[providers.tools.tools.find]
effect = "read"
argv = ["sh", "-c", {json.dumps(script)}, "sh", "=arguments.key"]
"""
    )
    return file


@asynccontextmanager
async def succeeded(folder: Path, *commands: str, contract: Contract = ACT) -> AsyncGenerator[Rig]:
    """A journal in which the calls of these commands have succeeded, and their keys stand in the ledger."""
    provider = ScriptedProvider(answer=Answered(result={"ok": True}))
    async with engine(folder, provider, contract=contract) as rig:
        for name in commands:
            await rig.intake.deliver([call(name, arguments={"n": name})])
            operation = await rig.settled(name)
            async with await anyio.open_file(folder / "ledger", "a") as ledger:
                await ledger.write(f"{operation.operation_id}\n")
        yield rig


async def check(file: Path, *options: str) -> Result:
    """Run the check in a thread, as click's own runner does."""
    line = ["check", *options, "--config", str(file)]
    return await to_thread.run_sync(lambda: CliRunner().invoke(main, line))


async def outcome(file: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code of a self-test, and what it says of the one probe."""
    done = await check(file, "--connect", "--selftest", "--json", *options)
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    (probe,) = told["probes"]
    assert told["healthy"] == (done.exit_code == 0)
    return done.exit_code, probe


async def test_a_probe_that_tells_them_apart_has_passed(tmp_path: Path) -> None:
    """It finds what succeeded, and nothing of what cannot exist; from then on it is known to have passed."""
    file = config(tmp_path, HONEST)
    before = json.loads((await check(file, "--json")).stdout)["probes"]
    async with succeeded(tmp_path, "cmd-1") as rig:
        operation = await rig.operation("cmd-1")
    code, probe = await outcome(file)
    after = json.loads((await check(file, "--json")).stdout)["probes"]
    assert [item["status"] for item in before] == ["untested"]
    assert (code, probe["status"], probe["tool"], probe["asks"]) == (0, "passed", "tools/act", "tools/find")
    assert operation.operation_id in probe["detail"]
    assert [item["status"] for item in after] == ["passed"]
    assert after[0]["passed_at"] == probe["passed_at"]


async def test_a_probe_that_is_another_one_now_is_untested_again(tmp_path: Path) -> None:
    """What was shown of one question shows nothing of another."""
    file = config(tmp_path, HONEST)
    async with succeeded(tmp_path, "cmd-1"):
        pass
    assert (await outcome(file))[0] == 0
    file = config(tmp_path, HONEST, arguments='{ key = "=operation_id" }')
    (probe,) = json.loads((await check(file, "--json")).stdout)["probes"]
    assert (probe["status"], probe["passed_at"]) == ("untested", None)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 1", "it finds 1 of"),
        ("echo 0", "it finds 0 of"),
        ("echo 7", "it finds 7 of"),
        ("wc -l < ledger", "does it look for the key?"),
        ("exit 3", "asked about"),
        ("echo many", "asked about"),
        (f'{HONEST}; grep -q -- "$1" ledger || exit 1', "cannot exist: find failed"),
        ('grep -q -- "$1" ledger && echo 0 || echo 1', "it finds 1 of an operation that cannot exist"),
        ('grep -q -- "$1" ledger && echo 2 || echo 0', "which succeeded once"),
    ],
)
async def test_a_probe_that_does_not_is_failed(tmp_path: Path, script: str, said: str) -> None:
    """The same answer to both, no answer to one of them, or more than there is: it would settle a lie."""
    file = config(tmp_path, script)
    async with succeeded(tmp_path, "cmd-1"):
        pass
    code, probe = await outcome(file)
    assert (code, probe["status"], probe["passed_at"]) == (1, "failed", None)
    assert said in probe["detail"]


@pytest.mark.parametrize(
    ("script", "status"), [("grep -c -- n=$1 ledger || true", "passed"), ("echo 1", "failed")]
)
async def test_a_probe_may_know_an_operation_by_its_arguments(
    tmp_path: Path, script: str, status: str
) -> None:
    """Where no key reaches the provider: another argument must lead to nothing, too."""
    file = config(tmp_path, script, arguments='{ key = "=arguments.n" }')
    async with succeeded(tmp_path, "cmd-1"):
        pass
    (tmp_path / "ledger").write_text("n=cmd-1\n")
    assert (await outcome(file))[1]["status"] == status


async def test_a_probe_that_fails_has_not_passed_any_more(tmp_path: Path) -> None:
    """Whatever it could do once."""
    file = config(tmp_path, HONEST)
    async with succeeded(tmp_path, "cmd-1"):
        pass
    assert (await outcome(file))[0] == 0
    (tmp_path / "ledger").write_text("")
    assert (await outcome(file))[1]["status"] == "failed"
    (probe,) = json.loads((await check(file, "--json")).stdout)["probes"]
    assert probe["status"] == "untested"


async def test_without_anything_that_happened_a_probe_stays_untested(tmp_path: Path) -> None:
    """That is no failure, and it is said; nothing is made for it beside the configuration."""
    file = config(tmp_path, HONEST)
    code, probe = await outcome(file)
    assert (code, probe["status"]) == (0, "untested")
    assert "call the tool once" in probe["detail"]
    assert not (tmp_path / "state" / "journal").exists()


async def test_an_effect_that_is_gone_is_no_failure_while_another_is_there(tmp_path: Path) -> None:
    """The newest that succeeded may have been taken back by somebody."""
    file = config(tmp_path, HONEST)
    async with succeeded(tmp_path, "cmd-1", "cmd-2"):
        lines = (tmp_path / "ledger").read_text().splitlines()
    (tmp_path / "ledger").write_text(lines[0] + "\n")
    code, probe = await outcome(file)
    assert (code, probe["status"]) == (0, "passed")
    assert lines[0] in probe["detail"]


@asynccontextmanager
async def served(folder: Path, rig: Rig) -> AsyncGenerator[World]:
    """The local API of a daemon that runs."""
    async with anyio.create_task_group() as tasks:
        world = World(journal=rig.journal, runtime_dir=folder / "run", desk=rig.local)
        world.runtime_dir.chmod(0o750)
        settings = LocalSettings(runtime_dir=world.runtime_dir)

        async def serve(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            await serve_local(world, settings, task_status=task_status)

        await tasks.start(serve)
        yield world
        tasks.cancel_scope.cancel()


async def test_a_daemon_that_runs_is_asked(tmp_path: Path) -> None:
    """Its journal is its own: the operations come over the socket, and the daemon goes on."""
    file = config(tmp_path, HONEST)
    async with succeeded(tmp_path, "cmd-1") as rig, served(tmp_path, rig):
        code, probe = await outcome(file)
        assert (code, probe["status"]) == (0, "passed")


async def test_what_a_daemon_withholds_is_not_asked_for(tmp_path: Path) -> None:
    """A probe by an argument that is redacted would look for the mark in its place: it stays untested."""
    file = config(tmp_path, "echo 1", arguments='{ key = "=arguments.n" }')
    secret = Contract(declared=True, redact=Redaction(("arguments.n",)))
    async with succeeded(tmp_path, "cmd-1", contract=secret) as rig, served(tmp_path, rig):
        code, probe = await outcome(file)
        assert (code, probe["status"]) == (0, "untested")
        assert "withholds" in probe["detail"]


async def test_a_journal_that_nobody_serves_is_left_alone(tmp_path: Path) -> None:
    """Locked by somebody who does not answer: the probe stays untested, and it says why."""
    file = config(tmp_path, HONEST)
    async with succeeded(tmp_path, "cmd-1") as rig:
        code, probe = await outcome(file)
        await rig.intake.deliver([command("run.end", "end-1", run_id=RUN)])
    assert (code, probe["status"]) == (0, "untested")
    assert "another effectd" in probe["detail"]


async def test_erased_arguments_leave_what_needs_them_untold(tmp_path: Path) -> None:
    """A contract that withholds something has its arguments erased; a probe by key does not need them."""
    file = config(tmp_path, HONEST)
    secret = Contract(declared=True, redact=Redaction(("arguments.n",)))
    async with succeeded(tmp_path, "cmd-1", contract=secret):
        pass
    assert (await outcome(file))[1]["status"] == "passed"


async def test_the_text_says_the_same(tmp_path: Path) -> None:
    """For people: what each probe asks, and whether it has ever passed."""
    file = config(tmp_path, "echo 1")
    async with succeeded(tmp_path, "cmd-1"):
        pass
    shown = await check(file)
    assert "untested" in shown.stdout
    assert "--selftest" in shown.stdout
    done = await check(file, "--connect", "--selftest")
    assert done.exit_code == 1
    assert "failed" in done.stdout


async def test_a_self_test_needs_the_providers(tmp_path: Path) -> None:
    """It is a usage error without --connect: nothing is started by surprise."""
    done = await check(config(tmp_path, HONEST), "--selftest")
    assert done.exit_code == 2
    assert "--connect" in done.stderr
