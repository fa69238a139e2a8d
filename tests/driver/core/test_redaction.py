"""Redaction: which values a contract withholds, and that nothing else changes."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.core.redaction import MARKER, InvalidRedactPath, Redacted, Redaction, Root, covers, redaction
from store.records import JsonObject, JsonValue
from tests.driver.core.json_values import objects


def applied(value: JsonObject, *paths: str, root: Root = "arguments") -> Redacted:
    """What these paths leave of `value`."""
    return Redaction(paths).apply(root, value)


@pytest.mark.parametrize(
    ("path", "before", "after", "withheld"),
    [
        ("body", {"body": "b", "title": "t"}, {"body": MARKER, "title": "t"}, ("b",)),
        ("body", {"title": "t"}, {"title": "t"}, ()),
        ("body", {"body": None}, {"body": MARKER}, (None,)),
        ("body", {"body": {"a": [1]}}, {"body": MARKER}, ({"a": [1]},)),
        ("a.b", {"a": {"b": 1, "c": 2}}, {"a": {"b": MARKER, "c": 2}}, (1,)),
        ("a.*", {"a": {"b": 1, "c": 2}}, {"a": {"b": MARKER, "c": MARKER}}, (1, 2)),
        ("a.*", {"a": [1, 2]}, {"a": [MARKER, MARKER]}, (1, 2)),
        ("a.1", {"a": [1, 2]}, {"a": [1, MARKER]}, (2,)),
        ("a.1", {"a": {"1": "x", "2": "y"}}, {"a": {"1": MARKER, "2": "y"}}, ("x",)),
        (
            "*.b",
            {"x": {"b": 1}, "y": {"b": 2, "c": 3}},
            {"x": {"b": MARKER}, "y": {"b": MARKER, "c": 3}},
            (1, 2),
        ),
        ("a.*.b", {"a": [{"b": 1}, {"c": 2}]}, {"a": [{"b": MARKER}, {"c": 2}]}, (1,)),
        ("*.b", {"x": {"b": 1}, "y": "text", "z": [7]}, {"x": {"b": MARKER}, "y": "text", "z": [7]}, (1,)),
        ("*", {"x": 1, "y": [2]}, {"x": MARKER, "y": MARKER}, (1, [2])),
    ],
)
def test_what_a_path_leads_to_becomes_the_marker(
    path: str, before: JsonObject, after: JsonObject, withheld: tuple[JsonValue, ...]
) -> None:
    """Keys, indexes and `*` are followed through objects and lists; whatever stands there goes."""
    assert applied(before, f"arguments.{path}") == Redacted(after, withheld)


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("a.b", {"a": "user:secret"}, {"a": MARKER}),
        ("a.b", {"a": [{"b": 1}]}, {"a": MARKER}),
        ("a.b", {"a": True}, {"a": MARKER}),
        ("a.*", {"a": 7}, {"a": MARKER}),
        ("a.0", {"a": "x"}, {"a": MARKER}),
        ("a.b", {"a": None}, {"a": None}),
        ("a.*.b", {"a": ["x@y", {"b": 1, "c": 2}]}, {"a": [MARKER, {"b": MARKER, "c": 2}]}),
        ("a.*.b", {"a": {"k": "x", "l": {"b": 1}}}, {"a": {"k": "x", "l": {"b": MARKER}}}),
    ],
)
def test_another_shape_than_was_declared_is_withheld_as_a_whole(
    path: str, before: JsonObject, after: JsonObject
) -> None:
    """Somebody expected a secret there: a text in place of an object may hold it."""
    assert applied(before, f"arguments.{path}").value == after


def test_the_shorter_of_two_paths_wins() -> None:
    """`a` withholds all of `a`, whatever stands before or behind it in the list."""
    value: JsonObject = {"a": {"b": 1, "c": 2}}
    assert applied(value, "arguments.a", "arguments.a.b").value == {"a": MARKER}
    assert applied(value, "arguments.a.b", "arguments.a").value == {"a": MARKER}
    assert applied(value, "arguments.a.b", "arguments.*.c").value == {"a": {"b": MARKER, "c": MARKER}}


def test_a_root_alone_withholds_every_member() -> None:
    """`arguments` is short for `arguments.*`: the names stay, so that the value is an object still."""
    assert applied({"a": 1, "b": {"c": 2}}, "arguments").value == {"a": MARKER, "b": MARKER}


def test_arguments_and_results_are_apart() -> None:
    """A path of the one withholds nothing of the other."""
    found = Redaction(("arguments.a", "result.b"))
    assert found.apply("arguments", {"a": 1, "b": 2}).value == {"a": MARKER, "b": 2}
    assert found.apply("result", {"a": 1, "b": 2}).value == {"a": 1, "b": MARKER}
    assert found.withholds_results
    assert not Redaction(("arguments.a",)).withholds_results


BLOCKS: JsonValue = [
    {"type": "text", "text": '{"email": "a@b"}'},
    {"type": "image", "data": "aaaa", "mimeType": "image/png"},
    {"type": "secret", "x": 1},
    "stray",
]


@pytest.mark.parametrize(
    "path", ["result.structuredContent", "result.structuredContent.items.*.email", "result.*.items.*.email"]
)
def test_content_text_goes_where_structured_content_is_redacted(path: str) -> None:
    """MCP says it twice: the text beside structured content would bring back what was taken out of it."""
    result: JsonObject = {
        "content": BLOCKS,
        "structuredContent": {"items": [{"email": "a@b"}]},
        "isError": False,
    }
    shown = applied(result, path, root="result").value
    assert isinstance(shown, dict)
    assert shown["content"] == [
        {"type": "text", "text": MARKER},
        {"type": "image", "data": MARKER, "mimeType": MARKER},
        {"type": MARKER, "x": MARKER},
        MARKER,
    ]
    assert "a@b" not in str(shown)


def test_a_body_that_is_no_json_goes_where_json_is_redacted() -> None:
    """An HTTP answer has the one or the other: an error page may quote what the JSON would have held."""
    assert applied({"status": 500, "text": "no a@b"}, "result.json.email", root="result").value == {
        "status": 500,
        "text": MARKER,
    }
    assert applied({"text": "no a@b"}, "result.headers.x", root="result").value == {"text": "no a@b"}


def test_content_text_stays_where_only_other_members_are_redacted() -> None:
    """The rule is about structured content alone; a content that is no list goes as a whole."""
    assert applied({"content": BLOCKS, "_meta": 1}, "result._meta", root="result").value == {
        "content": BLOCKS,
        "_meta": MARKER,
    }
    assert applied({"content": {"text": "x"}}, "result.structuredContent", root="result").value == {
        "content": MARKER
    }


@pytest.mark.parametrize(
    "path", ["", "argument.a", "arguments..a", "arguments.", ".a", "result.a..", "a.arguments"]
)
def test_what_is_no_path_is_refused(path: str) -> None:
    """A path that could never withhold anything must not look as if it did."""
    with pytest.raises(InvalidRedactPath) as refused:
        Redaction((path,))
    assert refused.value.text == path


def test_paths_are_joined_without_doubles() -> None:
    """A contract that changed withholds what it did and what it does."""
    first = Redaction(("arguments.a",))
    assert first.joined(("arguments.a",)) is first
    assert first.joined(("arguments.b", "arguments.a")) == Redaction(("arguments.a", "arguments.b"))
    assert redaction([]) is None
    assert redaction(["arguments.a", "arguments.a"]) == first


@pytest.mark.parametrize(
    ("path", "place", "expected"),
    [
        ("result.a.b", "result.a.b", True),
        ("result.a", "result.a.b", True),
        ("result.*.b", "result.a.b", True),
        ("result", "result.a", True),
        ("result.a.b", "result.a", False),
        ("result.a.c", "result.a.b", False),
        ("arguments.a", "result.a", False),
    ],
)
def test_a_path_covers_what_it_leads_to(path: str, place: str, expected: bool) -> None:
    """And all within that; not what only holds some of it."""
    assert covers(path, place.split(".")) is expected


def leaves(value: JsonValue, *place: str) -> Iterator[tuple[str, ...]]:
    """The places of all that stands in a value, containers included."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*place, key)
            yield from leaves(item, *place, key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield (*place, str(index))
            yield from leaves(item, *place, str(index))


def at(value: JsonValue, place: tuple[str, ...]) -> JsonValue:
    """What stands at one of the `leaves`."""
    for name in place:
        assert isinstance(value, dict | list)
        value = value[name] if isinstance(value, dict) else value[int(name)]
    return value


@given(value=objects, data=st.data())
def test_only_what_was_named_changes(value: JsonObject, data: st.DataObject) -> None:
    """The value at a path of its own becomes the marker, and everything that is not within it stays."""
    places = [place for place in leaves(value) if all(name and "." not in name for name in place)]
    if not places:
        return
    named = data.draw(st.sampled_from(places))
    if "*" in named:
        return
    before = repr(value)
    redacted = Redaction((".".join(("arguments", *named)),)).apply("arguments", value)
    assert at(redacted.value, named) == MARKER
    assert redacted.withheld == (at(value, named),)
    for place in places:
        if place[: len(named)] != named and named[: len(place)] != place:
            assert at(redacted.value, place) == at(value, place)
    assert repr(value) == before
