"""The published schema and tables: they are what the code says, and every frame of ours fits them."""

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from driver.core.codec import render
from driver.core.frames import CommandFrame, Frame
from driver.core.schema import document, event_tables, page, schema
from store.declared import EventData
from store.events import EVENT_TYPES
from store.records import JsonValue
from tests.driver.core import samples

DOCS = Path(__file__).parents[3] / "docs"
VALIDATOR = Draft202012Validator(schema())


def fits(frame: JsonValue) -> bool:
    """Whether the schema has nothing against a frame."""
    return VALIDATOR.is_valid(frame)  # pyright: ignore[reportUnknownMemberType] - the stubs are partial


def test_the_committed_schema_is_the_generated_one() -> None:
    """`make schema` was run after the last change of a frame, a command or an event."""
    assert (DOCS / "protocol.schema.json").read_text(encoding="utf-8") == document(), "run: make schema"


def test_the_tables_of_the_documentation_are_the_generated_ones() -> None:
    """`make schema` wrote them between the two markers of docs/protocol.md, and changes nothing else."""
    text = (DOCS / "protocol.md").read_text(encoding="utf-8")
    assert text == page(text), "run: make schema"
    assert event_tables() in text


def test_the_schema_is_a_schema() -> None:
    """It follows the 2020-12 dialect, and every reference in it leads somewhere."""
    Draft202012Validator.check_schema(schema())

    named = set(re.findall(r'"\$ref": "#/\$defs/([^"]+)"', document()))
    assert named <= set(schema()["$defs"])


@pytest.mark.parametrize("frame", [*samples.FROM_PLANE, *samples.FROM_DAEMON], ids=lambda frame: frame.type)
def test_every_frame_that_is_written_fits(frame: Frame) -> None:
    """One sample of each, unknown members included; nothing fits under another type."""
    raw = json.loads(render(frame))
    assert fits(raw)
    assert fits({**raw, "unknown": 1})
    assert not fits({**raw, "type": "other"})


@pytest.mark.parametrize("data", samples.EVENTS, ids=lambda data: data.KIND)
def test_every_event_that_the_journal_renders_fits(data: EventData) -> None:
    """Its data has the members of its kind, and no others of ours; those that are required are missed."""
    frame = json.loads(samples.sealed(data))
    shape = schema()["$defs"][f"event.{data.KIND}"]
    assert fits(frame)
    assert set(frame["data"]) <= set(shape["properties"])
    for name in shape["required"]:
        less = {key: value for key, value in frame["data"].items() if key != name}
        assert not fits({**frame, "data": less})


@pytest.mark.parametrize("kind", samples.COMMANDS)
def test_every_kind_of_command_fits(kind: str) -> None:
    """The data of each kind is looked at; a kind that nobody knows may hold anything."""
    for data in samples.COMMANDS[kind]:
        frame = CommandFrame(command_id=samples.COMMAND, run_id=samples.RUN, kind=kind, data=data)
        assert fits(json.loads(render(frame)))
        for name in samples.COMMANDS[kind][0]:
            raw = json.loads(render(frame))
            raw["data"][name] = 7
            assert not fits(raw)
            assert fits({**raw, "kind": "tool.summon"})


def test_every_kind_of_event_is_in_the_tables() -> None:
    """Kinds, members and closed words are all there to be read."""
    tables = event_tables()
    for event in EVENT_TYPES:
        assert f"| `{event.KIND}` |" in tables
    assert "`crash_window`" in tables
