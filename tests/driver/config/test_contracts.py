"""From tables to contracts: what the configuration promises is what decisions are made by."""

from pathlib import Path

import pytest

from driver.config.contracts import contracts
from driver.config.errors import ConfigInvalid
from driver.config.load import parse
from driver.core.contracts import ArgumentKey, Compensation, Contract, Contracts, MetaKey, Probe
from driver.core.expressions import Expression
from driver.core.redaction import Redaction
from driver.core.templates import Template


def mapped(text: str) -> Contracts:
    """Return the contracts of the configuration `text`."""
    return contracts(parse(text, Path("/etc/effectd/effectd.toml")))


PROVIDER = '[providers.p]\nkind = "mcp"\nargv = ["x"]\nlate_result_s = 5\n'


def test_every_key_of_a_tool_reaches_its_contract() -> None:
    """No promise is lost on the way."""
    text = PROVIDER + (
        'key = "argument:request_id"\n[providers.p.tools."a/b"]\neffect = "write"\nidempotent = true\n'
        "dedupe_horizon_s = 7\nretry_attempts = 2\nretry_backoff_s = 0.5\nexecution_s = 3\n"
        'approval_expires_s = 4\nerror_means = "none"\nidentical = "allow"\nreceipt = "result.id"\n'
        'redact = ["arguments.a", "result.*.b", "arguments.a"]\n'
    )
    assert mapped(text).lookup("p/a/b") == Contract(
        declared=True,
        effect="write",
        idempotent=True,
        dedupe_horizon_s=7.0,
        key_carrier=ArgumentKey("request_id"),
        retry_attempts=2,
        retry_backoff_s=0.5,
        execution_s=3.0,
        late_result_s=5.0,
        approval_expires_s=4.0,
        error_means="none",
        identical="allow",
        redact=Redaction(("arguments.a", "result.*.b")),
        receipt=Expression("result.id"),
    )


def test_an_empty_table_is_a_declared_careful_write() -> None:
    """Declaring a tool changes nothing but that it is declared."""
    contract = mapped(PROVIDER + "[providers.p.tools.t]\n").lookup("p/t")
    assert contract == Contract(declared=True, key_carrier=MetaKey(), late_result_s=5.0)


def test_an_undeclared_tool_has_its_providers_key_and_patience() -> None:
    """What no table names is a write that carries the provider's key."""
    assert mapped(PROVIDER).lookup("p/t") == Contract(key_carrier=MetaKey(), late_result_s=5.0)


def test_an_unknown_provider_promises_nothing() -> None:
    """A tool of nobody is the most careful contract."""
    assert mapped(PROVIDER).lookup("q/t") == Contract()


def test_a_probe_and_a_compensation_reach_their_contract() -> None:
    """Compiled once, with the values that the contract names, and careful ones where it names none."""
    tool = "[providers.p.tools.t"
    text = PROVIDER + (
        f'{tool}.probe]\ntool = "find"\narguments = {{ marker = "=key" }}\nmatches = "length(result.found)"\n'
        f"visible_after_s = 0\nattempts = 2\nauthoritative_absence = true\n"
        f'{tool}.compensate]\ntool = "undo"\narguments = {{ id = "=receipt", why = "undone" }}\n'
        '[providers.p.tools.find]\neffect = "read"\n'
        '[providers.p.tools.u.probe]\ntool = "find"\nmatches = "result.there"\n'
    )
    contract = mapped(text).lookup("p/t")
    assert contract.probe == Probe(
        tool="find",
        arguments=Template({"marker": "=key"}),
        matches=Expression("length(result.found)"),
        visible_after_s=0.0,
        attempts=2,
        authoritative_absence=True,
    )
    undo = Template({"id": "=receipt", "why": "undone"})
    assert contract.compensate == Compensation(tool="undo", arguments=undo)
    careful = Probe(tool="find", arguments=Template({}), matches=Expression("result.there"))
    assert mapped(text).lookup("p/u").probe == careful
    assert not careful.authoritative_absence


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('matches = "length("\narguments = {}', "matches"),
        ('matches = "result"\narguments = { deep = [{ marker = "=key[" }] }', "arguments.deep"),
    ],
)
def test_an_expression_that_is_none_names_its_table_and_key(line: str, key: str) -> None:
    """Found when the file is read, and not when something has gone wrong and the probe is needed."""
    text = f'[providers.p.tools.t.probe]\ntool = "find"\n{line}\n[providers.p.tools.find]\neffect = "read"\n'
    with pytest.raises(ConfigInvalid) as raised:
        mapped(PROVIDER + text)
    (problem,) = raised.value.problems
    assert str(problem).startswith(f"[providers.p.tools.t.probe] {key}: ")
