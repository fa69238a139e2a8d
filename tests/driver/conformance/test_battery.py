"""The battery judges a good client good, and a bad one bad, or says that it cannot."""

import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from driver.cli.main import main
from driver.conformance.battery import ADAPTERS, MUST_FIND, built_in, examine, self_check
from driver.conformance.cases import CASES
from driver.conformance.certificate import Certificate
from driver.conformance.errors import AdapterEnded, SelfCheckFailed
from driver.conformance.ledger import World
from driver.conformance.verdict import Harm, Seen
from tests.peers import from_path

FAULTLESS = ("timeout-after-commit", "error-after-commit", "declared-safe", "kill-after-effect")
"""Cases that end soon where their fault never fires."""
GUARD_S = 60
ANSWERS = Path(__file__).with_name("answers.mjs")

CLIENT = """
import anyio, json
from driver.conformance.adapters.careful import Careful
from driver.conformance.adapters.verbs import serve_with

class Client(Careful):
    def __init__(self, *words):
        super().__init__(*words)
        self._asked, self._client.call = self._client.call, self._call

    async def _call(self, tool, arguments, deadline_s, key=None):
        {call}

anyio.run(serve_with, Client)
"""
"""The good client, but for how it calls."""
BY_CONTENT = "return await self._asked(tool, arguments, deadline_s, key and json.dumps(dict(arguments)))"
"""Its keys are made of what is asked: two commands for the same share one."""
IMPATIENT = """
        try:
            return await self._asked(tool, arguments, deadline_s, key)
        finally:
            self._client._process.kill()
            await self._client._process.wait()
"""
"""It has a server for each call, and kills that as soon as it has heard."""
HOPEFUL = """
        if tool == "find_charge":
            return {"structuredContent": {"count": 1}}
        return await self._asked(tool, arguments, deadline_s, key)
"""
"""What nobody answered, it takes for done, and asks nobody."""

SCRIPT = """
import json, sys, time
for line in sys.stdin:
    verb = json.loads(line)["verb"]
    if verb == "start":
        print(json.dumps({"runtime": "script", "version": "1"}), flush=True)
    elif verb == "deliver":
        print(json.dumps({"accepted": True}), flush=True)
    else:
        {end}
"""


def script(end: str) -> Sequence[str]:
    """Return an adapter that takes every command, and comes to this `end` when it is asked for an outcome."""
    return (sys.executable, "-c", SCRIPT.replace("{end}", end))


def client(call: str) -> Sequence[str]:
    """Return the good client, with another way to `call`."""
    return (sys.executable, "-c", CLIENT.replace("{call}", call.strip()))


def said_in(fifo: Path) -> bytes:
    """Return the first words that a process writes into `fifo`; an error where none come."""
    descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert select.select([descriptor], [], [], GUARD_S)[0], "nobody has written"
        return os.read(descriptor, select.PIPE_BUF)
    finally:
        os.close(descriptor)


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only a little for what does not come."""
    monkeypatch.setattr("driver.conformance.adapter.PATIENCE_S", 3)
    for name in ("END_S", "REACH_S", "SEARCH_S", "SETTLE_S"):
        monkeypatch.setattr(f"driver.conformance.cases.{name}", 0.1)


@pytest.fixture
def without_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every fault away: the world is honest, whatever a case asks of it."""
    goes = World.goes

    def honestly(self: World, **_: str) -> None:
        goes(self)

    monkeypatch.setattr(World, "goes", honestly)


def verdicts(certificate: Certificate) -> dict[str, str]:
    """Return what came of each case."""
    return {one.case: one.verdict for one in certificate.cases}


@pytest.mark.anyio
async def test_a_certificate_says_what_was_seen() -> None:
    """Each case that was played stands in it, with its verdict, its harms and its counts."""
    said = (await examine("careful", built_in("careful"), cases=["honest"])).as_json()
    assert (said["runtime"], said["complete"], said["passed"]) == ("careful client", False, 1)
    assert not said["conforms"], "of the other cases nothing is known"
    [case] = json.loads(json.dumps(said))["cases"]
    assert case | {"seconds": 0} == {
        "case": "honest",
        "verdict": "passed",
        "harms": [],
        "told": "succeeded",
        "effects": 1,
        "calls": 1,
        "seconds": 0,
    }


@pytest.mark.anyio
@pytest.mark.usefixtures("without_faults")
async def test_a_fault_that_never_fires_proves_nothing() -> None:
    """A case whose fault did not fire is not exercised, however well the client did (negative control)."""
    said = await examine("careful", built_in("careful"), cases=FAULTLESS)
    assert verdicts(said) == dict.fromkeys(FAULTLESS, "not_exercised")
    assert not said.conforms, "and who has passed nothing does not conform"


@pytest.mark.lane
@pytest.mark.anyio
@pytest.mark.usefixtures("without_faults")
async def test_no_case_that_has_a_fault_is_passed_without_it() -> None:
    """Only what needs no fault is exercised by an honest world: all else is seen to be missing."""
    said = await examine("careful", built_in("careful"))
    needs_none = {"honest", "key-distinctness", "restart-with-redelivery", "conflict-on-changed-arguments"}
    assert verdicts(said) == {case: "passed" if case in needs_none else "not_exercised" for case in CASES}


@pytest.mark.anyio
@pytest.mark.usefixtures("briefly")
async def test_who_does_nothing_passes_nothing() -> None:
    """A client that takes every command and leaves it alone fails, or has not exercised the case."""
    said = await examine("idle", built_in("idle"))
    assert set(verdicts(said).values()) == {"failed", "not_exercised"}
    assert not said.conforms


@pytest.mark.anyio
@pytest.mark.usefixtures("briefly")
async def test_a_good_client_that_exercises_nothing_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-check wants every case passed by the good client: not exercised is not enough."""
    monkeypatch.setattr("driver.conformance.battery.GOOD", "idle")
    monkeypatch.setattr("driver.conformance.battery.MUST_FIND", {})
    few = {case: CASES[case] for case in FAULTLESS}
    monkeypatch.setattr("driver.conformance.battery.CASES", few)
    with pytest.raises(SelfCheckFailed, match="timeout-after-commit: not_exercised"):
        await self_check()


@pytest.mark.anyio
async def test_two_commands_that_ask_for_the_same_are_two() -> None:
    """Keys that are made of the arguments make the tool swallow the second, and are found out."""
    said = await examine("by content", client(BY_CONTENT), cases=["key-distinctness"])
    assert said.cases[0].harms == ("lost_effect", "shared_key")


@pytest.mark.anyio
async def test_who_kills_its_server_once_it_has_heard_is_not_accused() -> None:
    """That an answer left is written down before it does: nobody is too fast for the ledger."""
    said = await examine(
        "impatient", client(IMPATIENT), cases=["duplicate-answer", "unavailable-verification"]
    )
    assert verdicts(said) == dict.fromkeys(("duplicate-answer", "unavailable-verification"), "passed")


@pytest.mark.anyio
async def test_a_guess_that_is_right_is_a_guess() -> None:
    """A success that nobody has told of is a false one, in each case that has no answer."""
    cases = ["timeout-after-commit", "kill-after-effect"]
    said = await examine("hopeful", client(HOPEFUL), cases=cases)
    assert [one.harms for one in said.cases] == [("false_success",)] * 2


@contextmanager
def playing(
    folder: Path, *, hangup: signal.Handlers = signal.SIG_DFL
) -> Generator[tuple[subprocess.Popen[bytes], int]]:
    """Run a battery that begins with this disposition of SIGHUP; yields it and the id of its subject."""
    fifo = folder / "started"
    os.mkfifo(fifo)
    code = f"import os, sys, time; open({str(fifo)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    words = ["conformance", shlex.join([sys.executable, "-c", code]), "--no-self-check", "--case", "honest"]
    effectd = Path(sys.executable).with_name("effectd")
    ours = signal.signal(signal.SIGHUP, hangup)  # which it inherits
    try:
        battery = subprocess.Popen([effectd, *words], env={**os.environ, "TMPDIR": str(folder)})
    finally:
        signal.signal(signal.SIGHUP, ours)
    try:
        yield battery, int(said_in(fifo))
    finally:
        battery.terminate()  # where it is there still: what it has started goes with it
        try:
            battery.wait(GUARD_S)
        finally:
            battery.kill()
            battery.wait()


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGHUP], ids=lambda told: told.name)
def test_a_battery_that_is_told_to_end_leaves_nothing(tmp_path: Path, told: signal.Signals) -> None:
    """Neither its subject nor a folder is left by it, as by Ctrl-C."""
    with playing(tmp_path) as (battery, subject):
        battery.send_signal(told)
        assert battery.wait(GUARD_S) == 128 + told
        assert not Path(f"/proc/{subject}").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["started"]


def test_a_battery_under_nohup_heeds_no_terminal_that_closes(tmp_path: Path) -> None:
    """SIGHUP stays ignored where it was so at the start, and SIGTERM ends it as ever."""
    with playing(tmp_path, hangup=signal.SIG_IGN) as (battery, _):
        status = Path(f"/proc/{battery.pid}/status").read_text()
        [ignored] = [line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")]
        assert int(ignored, 16) >> (signal.SIGHUP - 1) & 1
        battery.terminate()
        assert battery.wait(GUARD_S) == 128 + signal.SIGTERM


def test_the_bad_clients_show_a_harm_in_every_case() -> None:
    """Between them the self-check finds each case able to fail."""
    assert {case for must in MUST_FIND.values() for case in must} == set(CASES)


@pytest.mark.lane
@pytest.mark.anyio
async def test_the_battery_judges_its_own_clients_rightly() -> None:
    """The good client passes every case, and the bad ones fail each in the way that they must."""
    await self_check()


@pytest.mark.anyio
async def test_a_battery_without_its_rules_fails_its_self_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A battery that sees no harm in anything is noticed (negative control)."""
    few = ("error-after-commit", "kill-after-effect")
    monkeypatch.setattr("driver.conformance.battery.CASES", {case: CASES[case] for case in few})
    must = {case: MUST_FIND["reckless"][case] for case in few}
    monkeypatch.setattr("driver.conformance.battery.MUST_FIND", {"reckless": must})
    await self_check()

    def blind(seen: Seen) -> frozenset[Harm]:
        del seen
        return frozenset()

    monkeypatch.setattr("driver.conformance.cases.harms", blind)
    with pytest.raises(SelfCheckFailed, match="reckless client in kill-after-effect"):
        await self_check()


@pytest.mark.anyio
@pytest.mark.usefixtures("briefly")
async def test_a_subject_that_hangs_has_failed_the_case() -> None:
    """Its silence is a harm, and no end of the battery: the next case is played."""
    said = await examine("script", script("time.sleep(60)"), cases=["honest", "error-after-commit"])
    assert [(one.verdict, one.harms, one.told) for one in said.cases] == [
        ("failed", ("hang",), "running")
    ] * 2


@pytest.mark.anyio
@pytest.mark.usefixtures("briefly")
async def test_a_case_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """However patient its waits are, a case ends at its limit, and is judged."""
    monkeypatch.setattr("driver.conformance.cases.CASE_S", 5)
    monkeypatch.setattr("driver.conformance.cases.END_S", 60)
    said = await examine("script", script("time.sleep(60)"), cases=["honest"])
    assert said.cases[0].harms == ("hang",)


@pytest.mark.anyio
async def test_a_subject_that_ends_by_itself_has_lost_the_command() -> None:
    """A crash that nobody asked for is what the case is failed for."""
    said = await examine("script", script("sys.exit(1)"), cases=["honest"])
    assert said.cases[0].harms == ("lost_command",)


@pytest.mark.anyio
async def test_what_got_away_from_the_subject_spoils_no_examination(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may write into the folder of a case that is over, and is being removed."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    writes = f"while [ ! -e {tmp_path}/enough ]; do mkdir -p state/d; : > state/d/$RANDOM.$$; done"
    away = f"subprocess.Popen(['bash', '-c', {writes!r}], cwd=json.loads(line)['state'] + '/..', "
    away += "start_new_session=True, stdin=-3, stdout=-3, stderr=-3)"
    code = SCRIPT.replace("{end}", "sys.exit(1)").replace(
        'if verb == "start":', f'if verb == "start":\n        {away}'
    )
    code = code.replace("import json", "import subprocess, json")
    try:
        said = await examine("script", (sys.executable, "-c", code), cases=["honest"])
    finally:
        (tmp_path / "enough").touch()
    assert said.cases[0].harms == ("lost_command",)


@pytest.mark.anyio
async def test_what_never_starts_is_not_judged() -> None:
    """An adapter that ends before it has named its runtime is none: there is nothing to certify."""
    with pytest.raises(AdapterEnded):
        await examine("none", (sys.executable, "-c", "pass"), cases=["honest"])


@pytest.mark.anyio
async def test_somebody_who_waits_is_told_that_a_case_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """At its beginning, and again and again while it runs."""
    monkeypatch.setattr("driver.conformance.battery.WATCH_S", 0.05)
    heard: list[tuple[str, str, float]] = []

    def watch(adapter: str, case: str, seconds: float) -> None:
        heard.append((adapter, case, seconds))

    await examine("careful", built_in("careful"), cases=["honest"], watch=watch)
    assert {said[:2] for said in heard} == {("careful", "honest")}
    assert heard[0][2] < heard[-1][2]


@pytest.mark.anyio
async def test_an_adapter_may_be_written_in_any_language() -> None:
    """One in JavaScript, which remembers nothing, is judged like any other."""
    cases = ["honest", "restart-with-redelivery"]
    said = await examine("node", (from_path("node"), str(ANSWERS)), cases=cases)
    assert said.runtime == "node"
    assert verdicts(said) == {"honest": "passed", "restart-with-redelivery": "failed"}


def test_the_command_line_prints_the_certificate_and_exits_by_it() -> None:
    """0 where nothing failed, 1 where something did, and JSON with `--json`, alone on standard output."""
    arguments = ["conformance", "in-memory", "--no-self-check", "--json", "--case"]
    good = CliRunner().invoke(main, [*arguments, "honest"])
    bad = CliRunner().invoke(main, [*arguments, "conflict-on-changed-arguments"])
    assert (good.exit_code, bad.exit_code) == (0, 1)
    assert json.loads(bad.stdout)["cases"][0]["harms"] == ["conflict_ignored"]
    assert json.loads(bad.stdout)["self_checked"] is False


def test_an_adapter_that_is_none_is_a_mistake_in_the_call() -> None:
    """The error names those that come with effectd."""
    said = CliRunner().invoke(main, ["conformance", "no-such-program"])
    assert said.exit_code == 2
    assert all(name in said.output for name in ADAPTERS)


@pytest.mark.parametrize("words", [["python3 'adapter.py"], ["langgraph", "--python", __file__]], ids=str)
def test_a_command_that_cannot_be_one_is_a_mistake_in_the_call(words: list[str]) -> None:
    """A quote that is not closed, and an interpreter that is no program, are no bugs of ours."""
    assert CliRunner().invoke(main, ["conformance", *words]).exit_code == 2


def test_an_adapter_that_breaks_is_named_with_its_last_words() -> None:
    """Nothing can be said of it, which is exit code 1, and no traceback of ours."""
    python = shutil.which("python3")
    said = CliRunner().invoke(main, ["conformance", f"{python} -c 'exit(\"the reason\")'", "--no-self-check"])
    assert said.exit_code == 1
    assert "the reason" in said.output
