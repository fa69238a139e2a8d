"""Tool contracts: careful defaults, and how an idempotency key travels."""

import pytest

from driver.core.contracts import (
    ArgumentKey,
    Contract,
    Contracts,
    ContradictoryContract,
    HeaderKey,
    InvalidKeyCarrier,
    KeyCarrier,
    MetaKey,
    NoKey,
    Sep3182Key,
    ToolName,
    parse_key_carrier,
)
from driver.core.expressions import Expression, InvalidExpression


def test_a_tool_that_nobody_declared_is_a_careful_write() -> None:
    """Every default is the one that cannot hurt: a write, not idempotent, never retried, guarded."""
    contract = Contracts().lookup("anything/at_all")
    assert contract == Contract()
    assert contract.write
    assert (contract.idempotent, contract.retry, contract.error_means) == (False, "never", "reported")
    assert (contract.identical, contract.approval, contract.declared) == ("guard-unsettled", "none", False)
    assert (contract.execution_s, contract.late_result_s) == (60, 60)


def test_an_undeclared_tool_has_what_its_provider_says() -> None:
    """The key's carrier and the late window belong to the provider, and hold for tools it never declared."""
    declared = Contract(declared=True, effect="read")
    provider = Contract(key_carrier=MetaKey(), late_result_s=5)
    contracts = Contracts(tools={ToolName("a", "t"): declared}, undeclared={"a": provider})
    assert contracts.lookup("a/t") is declared
    assert contracts.lookup("a/u") is provider
    assert contracts.lookup("b/t") == Contract()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("issues/create_issue", ToolName("issues", "create_issue")),
        ("fs/a/b", ToolName("fs", "a/b")),
        ("bare", ToolName("bare", "")),
        ("/x", ToolName("", "x")),
    ],
)
def test_a_tools_name_splits_at_its_first_slash(text: str, name: ToolName) -> None:
    """What stands behind the first `/` is the provider's own business."""
    assert ToolName.parse(text) == name


@pytest.mark.parametrize(
    ("text", "carrier"),
    [
        ("none", NoKey()),
        ("meta", MetaKey()),
        ("argument:idempotency_key", ArgumentKey("idempotency_key")),
        ("argument:a:b", ArgumentKey("a:b")),
        ("header:Idempotency-Key", HeaderKey("Idempotency-Key")),
        ("sep3182", Sep3182Key()),
    ],
)
def test_a_key_carrier_is_parsed_and_written_alike(text: str, carrier: KeyCarrier) -> None:
    """The journal records the carrier in the configuration's own form."""
    assert parse_key_carrier(text) == carrier
    assert str(carrier) == text


@pytest.mark.parametrize(
    "text", ["", "Meta", "argument:", "header:", "header:a b", "header", "meta:x", "none:"]
)
def test_an_unknown_key_carrier_is_refused(text: str) -> None:
    """The error names what is allowed."""
    with pytest.raises(InvalidKeyCarrier, match="argument:NAME"):
        parse_key_carrier(text)


def test_an_idempotent_contract_needs_a_horizon() -> None:
    """Without it rule R could not say until when a key may be sent again."""
    with pytest.raises(ContradictoryContract, match="dedupe_horizon_s"):
        Contract(idempotent=True, key_carrier=MetaKey())


@pytest.mark.parametrize(
    "contract",
    [
        {"key_carrier": MetaKey()},
        {"idempotent": True, "dedupe_horizon_s": 60},
        {"idempotent": True, "dedupe_horizon_s": 60, "key_carrier": MetaKey(), "approval": "required"},
    ],
)
def test_retries_need_idempotency_a_carrier_and_no_approval(contract: dict[str, object]) -> None:
    """A key is only sent again where the provider deduplicates it and nobody has to be asked."""
    with pytest.raises(ContradictoryContract, match="same-key"):
        Contract(retry="same-key", **contract)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_an_expression_that_cannot_be_compiled_is_refused() -> None:
    """A broken receipt expression is found when the configuration is read, not after the first effect."""
    with pytest.raises(InvalidExpression, match="cannot be compiled"):
        Expression("result.[")


def test_expressions_are_compared_by_their_text() -> None:
    """Contracts can be compared, whatever a compiled expression looks like."""
    assert Expression("a.b") == Expression("a.b")
    assert Contract(receipt=Expression("a")) != Contract(receipt=Expression("b"))
