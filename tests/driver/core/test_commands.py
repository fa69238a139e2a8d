"""The data of each kind of command: what it takes, and what it refuses for good."""

import pytest

from driver.core.commands import (
    KINDS,
    STARTS_WORK,
    AnnotateData,
    InvalidData,
    ReconcileData,
    ToolCallData,
    parse_data,
)
from driver.core.identity import is_plane_command_id
from store.lifecycle import Effect
from store.records import JsonObject, JsonValue
from tests.driver.core import samples

CASES = [(kind, data) for kind, datas in samples.COMMANDS.items() for data in datas]


def refusal(kind: str, data: JsonObject) -> InvalidData:
    """Why `data` is refused."""
    read = parse_data(kind, data)
    assert isinstance(read, InvalidData), read
    return read


def test_there_is_a_sample_of_every_kind() -> None:
    """A kind that is added gets a sample, and with it the tests below."""
    assert tuple(samples.COMMANDS) == KINDS
    assert set(KINDS) > STARTS_WORK


@pytest.mark.parametrize(("kind", "data"), CASES)
def test_a_kind_takes_its_data(kind: str, data: JsonObject) -> None:
    """Each sample is read, as the value of its own kind; unknown members change nothing."""
    read = parse_data(kind, data)
    assert not isinstance(read, InvalidData)
    assert kind == read.KIND
    assert parse_data(kind, {**data, "unknown": 1}) == read


@pytest.mark.parametrize(("kind", "data"), CASES)
def test_required_members_are_required_and_typed(kind: str, data: JsonObject) -> None:
    """Each member of the smallest sample is needed, and takes no other type; the refusal names it."""
    smallest = samples.COMMANDS[kind][0]
    for name in data:
        wrong: tuple[JsonValue, ...] = (7, [7], "\n" if name in {"arguments", "metadata"} else {"a": 1})
        for other in wrong:
            assert name in refusal(kind, {**data, name: other}).message
        absent = {key: value for key, value in data.items() if key != name}
        if name in smallest:
            assert name in refusal(kind, absent).message
            assert name in refusal(kind, {**data, name: None}).message
        else:
            assert parse_data(kind, absent) == parse_data(kind, {**data, name: None})


def test_an_unknown_kind_is_told_apart() -> None:
    """The plane learns that it is ahead of this daemon, and which kinds there are."""
    read = refusal("tool.summon", {})
    assert read.code == "unknown_kind"
    assert "tool.call" in read.message


@pytest.mark.parametrize("tool", ["a/b", "nowhere", "a/b/c", "ä/ö", "a/" + "x" * 254])
def test_any_name_is_a_tool_until_somebody_looks_it_up(tool: str) -> None:
    """An unknown provider or tool is accepted here, and ends `unknown_tool`."""
    read = parse_data("tool.call", {"tool": tool, "arguments": {}})
    assert isinstance(read, ToolCallData)
    assert (read.tool, read.repeat, read.resumes, read.parent_operation_id) == (tool, False, (), None)


@pytest.mark.parametrize(
    "change",
    [
        {"tool": ""},
        {"tool": "x" * 257},
        {"arguments": []},
        {"arguments": None},
        {"repeat": 1},
        {"repeat": "true"},
        {"resumes": "run-1"},
        {"resumes": ["a b"]},
        {"resumes": [["r"]]},
        {"resumes": [f"r{n}" for n in range(65)]},
        {"parent_operation_id": "op 1"},
    ],
)
def test_a_malformed_call_is_invalid(change: JsonObject) -> None:
    """Types are strict, ids are checked, lists are bounded."""
    read = refusal("tool.call", {"tool": "a/b", "arguments": {}, **change})
    assert read.code == "invalid"
    assert next(iter(change)) in read.message


def test_arguments_arrive_as_they_were_sent() -> None:
    """Nothing inside them is converted: 1.0 stays a double, true a boolean, a long integer exact."""
    arguments: JsonObject = {"a": 1.0, "b": True, "c": 10**60, "d": [None, {"e": "1"}]}
    read = parse_data("tool.call", {"tool": "a/b", "arguments": arguments})
    assert isinstance(read, ToolCallData)
    assert repr(read.arguments) == repr(arguments)


VERDICT: JsonObject = {
    "operation_id": samples.OPERATION,
    "effect": "none",
    "actor": "operator:ann",
    "note": "n",
}


@pytest.mark.parametrize(("note", "fits"), [("é" * 1_000, True), ("é" * 1_000 + "x", False), ("", True)])
def test_a_note_is_bounded_in_bytes(note: str, fits: bool) -> None:
    """2,000 bytes of UTF-8, never cut."""
    read = parse_data("operation.reconcile", {**VERDICT, "note": note})
    assert isinstance(read, ReconcileData) == fits


def test_a_verdict_names_one_of_three_effects() -> None:
    """It becomes the lifecycle's own word."""
    for effect in Effect:
        read = parse_data("operation.reconcile", {**VERDICT, "effect": effect.value})
        assert isinstance(read, ReconcileData)
        assert read.effect is effect
    for other in ("maybe", "None", None, True, 0):
        assert "effect" in refusal("operation.reconcile", {**VERDICT, "effect": other}).message


@pytest.mark.parametrize(
    ("metadata", "fits"),
    [
        ({"id": "1", "title": "t", "url": "u", "normalized_title": "n", "scope_identity": "s"}, True),
        ({"title": "é" * 2_048}, True),
        ({"title": "é" * 2_048, "id": "1"}, False),
        ({"id": 1}, False),
        ({"id": None}, False),
        ({"other": "x"}, False),
        ([], False),
    ],
)
def test_an_annotation_has_five_keys_and_a_size(metadata: JsonValue, fits: bool) -> None:
    """String values under the five keys, 4,096 bytes of them; nothing that the host wants kept is dropped."""
    read = parse_data("operation.annotate", {"operation_id": samples.OPERATION, "metadata": metadata})
    assert isinstance(read, AnnotateData) == fits


def test_a_command_may_name_a_compensation_without_being_one() -> None:
    """The daemon's own commands can be cancelled by their id, which no plane can send as its own."""
    target = f"compensate:{samples.OPERATION}"
    assert not is_plane_command_id(target)
    assert not isinstance(parse_data("command.cancel", {"target_command_id": target}), InvalidData)
