"""JSON Schema from servers: what it catches, and what it must not do to us."""

import time
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from driver.providers.mcp.schema import Schema
from store.records import JsonObject, JsonValue

ENDLESS_S = 5.0
"""Of CPU time. None of these takes a tenth of it; without a bound they take minutes, or years."""

NAMED: JsonObject = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "n": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}


def problem(schema: JsonValue, value: JsonValue) -> str | None:
    """Return what `schema` has against `value`."""
    return Schema(schema, where="test").problem(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"name": "x", "n": 1}, None),
        ({"n": 1}, "$ 'name' is a required property"),
        ({"name": 5}, "$.name is not of type string"),
        ({"name": "x", "n": -1}, "$.n breaks the rule 'minimum'"),
        ({"name": "x", "m": 1}, "$ Additional properties are not allowed ('m' was unexpected)"),
        ("text", "$ is not of type object"),
    ],
)
def test_a_problem_names_the_place_and_the_rule(value: JsonValue, words: str | None) -> None:
    """The message is enough to mend the arguments, and quotes no value of them."""
    assert problem(NAMED, value) == words


@pytest.mark.parametrize(
    "schema",
    [
        None,
        "object",
        [],
        {"type": "no such type"},
        {"required": "name"},
        {"properties": []},
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.invalid/schema.json"},
        {"$schema": "https://example.invalid/dialect", "type": ["string", 7]},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"type": "object", "description": "x" * 70_000},
    ],
)
def test_a_schema_that_is_of_no_use_lets_everything_through(schema: JsonValue) -> None:
    """A broken schema is not the caller's fault; nothing is fetched, and nothing recurses for ever."""
    began = time.process_time()
    assert problem(schema, {"a": 1}) is None
    assert time.process_time() - began < ENDLESS_S


def test_draft_7_and_2020_12_are_both_understood() -> None:
    """The schema says which one it is written in."""
    tuple_7: JsonObject = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "items": [{"type": "string"}],
    }
    tuple_2020: JsonObject = {"prefixItems": [{"type": "string"}]}
    for schema in (tuple_7, tuple_2020):
        assert problem(schema, ["x"]) is None
        assert problem(schema, [1]) == "$[0] is not of type string"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 40 + "!"),
        ({"patternProperties": {"^(a+)+$": False}}, {"a" * 40 + "!": 1}),
        ({"propertyNames": {"pattern": "^(a+)+$"}}, {"a" * 40 + "!": 1}),
        (
            {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
            {"a" * 40 + "!": 1},
        ),
        (
            {
                "properties": {
                    "x": {"$schema": "https://json-schema.org/draft/2020-12/schema", "pattern": "^(a+)+$"}
                }
            },
            {"x": "a" * 40 + "!"},
        ),
        ({"uniqueItems": True}, [{"n": n} for n in range(20_000)]),
        ({"items": {"type": "integer"}}, list(range(100_000))),
        (
            {
                "$defs": {
                    f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 4} if n < 20 else False
                    for n in range(21)
                },
                "$ref": "#/$defs/d0",
            },
            1,
        ),
    ],
)
def test_no_schema_stops_the_loop(schema: JsonValue, value: JsonValue) -> None:
    """Patterns are not run, and what takes too many steps is let through."""
    began = time.process_time()
    assert problem(schema, value) is None
    assert time.process_time() - began < ENDLESS_S


def test_a_property_named_like_a_keyword_is_a_property() -> None:
    """Only keywords lose their meaning, not names."""
    schema: JsonObject = {
        "properties": {"pattern": {"type": "string"}, "$schema": {"type": "string"}},
        "required": ["pattern"],
    }
    assert problem(schema, {"pattern": "(", "$schema": "x"}) is None
    assert problem(schema, {"pattern": 1}) == "$.pattern is not of type string"
    assert problem(schema, {"pattern": "(", "$schema": 1}) is not None


KINDS: Final = ("string", "integer", "number", "boolean", "null", "array", "object")
PLAIN: Final[list[JsonValue]] = [{"type": kind} for kind in KINDS]
TITLED: Final[list[JsonValue]] = [{"type": kind, "title": "t"} for kind in KINDS]
OTHERS: Final[tuple[JsonValue, ...]] = (
    True,
    False,
    {"type": ["string", "null"]},
    {"type": "integer", "minimum": 1},
    {"type": "integer", "enum": [1]},
    {"type": "integer", "$ref": "#/$defs/one"},
)
VALUES: Final[tuple[JsonValue, ...]] = (None, True, 0, 1, 1.0, 1.5, "x", [], {})


@given(
    parts=st.tuples(st.sampled_from([*PLAIN, *TITLED]), st.sampled_from([*PLAIN, *OTHERS])),
    values=st.tuples(st.sampled_from(VALUES), st.sampled_from(VALUES)),
)
def test_what_fits_is_what_the_library_says_fits(
    parts: tuple[JsonValue, JsonValue], values: tuple[JsonValue, JsonValue]
) -> None:
    """Properties of which only the type is asked are looked at in a way of our own: it comes to the same."""
    schema: JsonObject = {"properties": dict(zip("ab", parts, strict=True)), "$defs": {"one": {"const": 1}}}
    value: JsonObject = dict(zip("ab", values, strict=True))
    plainly = Draft202012Validator(schema)
    fits = plainly.is_valid(value)  # pyright: ignore[reportUnknownMemberType] - its stubs leave a type open
    assert (problem(schema, value) is None) == fits
