"""The battery judges a good client good, and a bad one bad, or says that it cannot."""

import json

import pytest
from click.testing import CliRunner

from driver.cli.main import main
from driver.conformance.battery import ADAPTERS, built_in, examine, self_check
from driver.conformance.errors import SelfCheckFailed
from driver.conformance.verdict import Harm, Seen


@pytest.mark.anyio
async def test_a_certificate_says_what_was_seen() -> None:
    """Each case that was played stands in it, with its verdict, its harms and its counts."""
    said = (await examine("careful", built_in("careful"), cases=["honest"])).as_json()
    assert json.loads(json.dumps(said)) == said
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


@pytest.mark.lane
@pytest.mark.anyio
async def test_the_battery_judges_its_own_clients_rightly() -> None:
    """The good client passes every case, and the bad one fails each in the way that it must."""
    await self_check()


@pytest.mark.lane
@pytest.mark.anyio
async def test_a_battery_without_its_rules_fails_its_self_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A battery that sees no harm in anything is noticed (negative control)."""

    def blind(seen: Seen) -> frozenset[Harm]:
        del seen
        return frozenset()

    monkeypatch.setattr("driver.conformance.cases.harms", blind)
    with pytest.raises(SelfCheckFailed, match="kill-after-effect"):
        await self_check()


@pytest.mark.lane
@pytest.mark.anyio
async def test_effectd_conforms() -> None:
    """The driver itself fails no case."""
    certificate = await examine("effectd", built_in("effectd"))
    assert certificate.conforms, certificate.as_json()


def test_the_command_line_prints_the_certificate_and_exits_by_it() -> None:
    """0 where nothing failed, 1 where something did, and JSON with `--json`."""
    arguments = ["conformance", "in-memory", "--no-self-check", "--json", "--case"]
    good = CliRunner().invoke(main, [*arguments, "honest"])
    bad = CliRunner().invoke(main, [*arguments, "conflict-on-changed-arguments"])
    assert (good.exit_code, bad.exit_code) == (0, 1)
    assert json.loads(bad.stdout)["cases"][0]["harms"] == ["conflict_ignored"]


def test_an_adapter_that_is_none_is_a_mistake_in_the_call() -> None:
    """The error names those that come with effectd."""
    said = CliRunner().invoke(main, ["conformance", "no-such-program"])
    assert said.exit_code == 2
    assert all(name in said.output for name in ADAPTERS)
