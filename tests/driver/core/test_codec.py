"""Frames on the wire: what is written is read back, and what is wrong gets the answer that it is owed."""

import json
from dataclasses import MISSING, fields
from typing import Final

import pytest

from driver.core.codec import parse_from_daemon, parse_from_plane, render
from driver.core.frames import (
    DAEMON_FRAMES,
    PLANE_FRAMES,
    Ack,
    BadFrame,
    CommandFrame,
    ErrorFrame,
    EventFrame,
    Frame,
    InvalidCommand,
    InvalidEvent,
    Welcome,
)
from driver.core.identity import content_digest
from store.declared import EventData
from store.events import BY_KIND
from store.records import CommandId, JsonObject, JsonValue, RunId
from tests.driver.core import samples

ALL = [*samples.FROM_PLANE, *samples.FROM_DAEMON]


def changed(frame: Frame, **members: JsonValue) -> str:
    """The text of `frame` with some members set."""
    return json.dumps({**json.loads(render(frame)), **members})


def without(frame: Frame, member: str) -> str:
    """The text of `frame` with one member taken away."""
    return json.dumps({key: value for key, value in json.loads(render(frame)).items() if key != member})


def either(text: str, frame: Frame) -> object:
    """What the peer of the side that sends `frame` reads in `text`."""
    return parse_from_plane(text) if isinstance(frame, PLANE_FRAMES) else parse_from_daemon(text)


def ident(frame: Frame) -> str:
    """The name of a parametrised case."""
    return frame.type


def kind_of(data: EventData) -> str:
    """The name of a parametrised event."""
    return data.KIND


def test_there_is_a_sample_of_every_frame() -> None:
    """A frame that is added gets a sample, and with it the tests below."""
    assert {type(frame) for frame in samples.FROM_PLANE} == set(PLANE_FRAMES)
    assert {type(frame) for frame in samples.FROM_DAEMON} == set(DAEMON_FRAMES)
    assert {data.KIND for data in samples.EVENTS} == set(BY_KIND)


@pytest.mark.parametrize("frame", ALL, ids=ident)
def test_a_frame_is_read_back_as_it_was_written(frame: Frame) -> None:
    """Writing and reading is the identity, and the type comes first."""
    assert either(render(frame), frame) == frame
    assert render(frame).startswith(f'{{"type":"{frame.type}"')


@pytest.mark.parametrize("frame", ALL, ids=ident)
def test_unknown_members_are_ignored(frame: Frame) -> None:
    """A newer peer may say more."""
    assert either(changed(frame, unknown={"a": 1}, Type="x"), frame) == frame


@pytest.mark.parametrize("frame", [frame for frame in ALL if not isinstance(frame, ErrorFrame)], ids=ident)
def test_no_member_takes_a_value_of_another_type(frame: Frame) -> None:
    """A list is no member's value; a bool, a fraction or a text is no number, a number no text."""
    for name, value in json.loads(render(frame)).items():
        wrong: list[JsonValue] = [[[True]]]
        if type(value) is int:
            wrong += [True, 1.5, "1", -1]
        if type(value) in (str, bool):
            wrong += [1]
        for other in wrong:
            read = either(changed(frame, **{name: other}), frame)
            assert isinstance(read, BadFrame | InvalidCommand | InvalidEvent), (name, other)
            assert name in read.message


@pytest.mark.parametrize("frame", [frame for frame in ALL if not isinstance(frame, ErrorFrame)], ids=ident)
def test_members_without_a_default_are_required(frame: Frame) -> None:
    """Leaving one out is an error that names it; leaving out any other is none."""
    for field in fields(frame):
        name = field.name.rstrip("_")
        read = either(without(frame, name), frame)
        if name == "type" or field.default is MISSING is field.default_factory:
            assert isinstance(read, BadFrame | InvalidCommand | InvalidEvent)
            assert name in read.message
        elif not (isinstance(frame, Welcome) and name == "acked_chain"):
            assert isinstance(read, type(frame))


def test_null_stands_for_an_absent_optional_member() -> None:
    """Writers that spell out what they leave out are understood."""
    nulls = {"data": None, "expires_in_ms": None, "delivered_to": None, "traceparent": None}
    frame = parse_from_plane(json.dumps({"type": "command", **_base("c"), **nulls}))
    assert frame == CommandFrame(command_id=CommandId("c"), run_id=RunId("r"), kind="run.end")


@pytest.mark.parametrize("data", samples.EVENTS, ids=kind_of)
def test_every_event_that_the_journal_renders_is_an_event(data: EventData) -> None:
    """The envelope has one shape, whoever writes it."""
    read = parse_from_daemon(samples.sealed(data).decode())
    assert isinstance(read, EventFrame)
    assert (read.kind, read.terminal, read.run_id is None) == (
        data.KIND,
        data.TERMINAL,
        read.command_id is None,
    )


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b'{"type":"ack","seq":1}', "binary_frame"),
        ("", "invalid_json"),
        ("[]", "not_an_object"),
        ("{}", "invalid_frame"),
        ('{"type":1}', "invalid_frame"),
        ('{"type":"hello"}', "unknown_type"),
        ('{"type":"welcom"}', "unknown_type"),
        ('{"type":"ack","seq":1,"seq":2}', "duplicate_key"),
        ('{"type":"ack","seq":1e400}', "not_finite"),
        ('{"type":"ack","seq":9223372036854775808}', "invalid_frame"),
        ('{"type":"ack","seq":1.0}', "invalid_frame"),
        ('{"type":"nack","seq":0,"code":"busy"}', "invalid_frame"),
        ('{"type":"nack","seq":1,"code":"other"}', "invalid_frame"),
        (
            '{"type":"welcome","session_id":"s","acked_seq":1,"window":1,"max_frame_bytes":9999}',
            "invalid_frame",
        ),
        (
            '{"type":"welcome","session_id":"s","acked_seq":0,"window":0,"max_frame_bytes":9999}',
            "invalid_frame",
        ),
        ('{"type":"welcome","session_id":"s","acked_seq":0,"window":1,"max_frame_bytes":9}', "invalid_frame"),
        ('{"type":"command"}', "invalid_command_id"),
        ('{"type":"command","command_id":7,"run_id":"r","kind":"run.end"}', "invalid_command_id"),
        (
            '{"type":"command","command_id":"compensate:op_1","run_id":"r","kind":"run.end"}',
            "invalid_command_id",
        ),
        ('{"type":"command","command_id":"a b","run_id":"r","kind":"run.end"}', "invalid_command_id"),
    ],
)
def test_what_nobody_can_be_answered_for_is_an_error(text: str | bytes, code: str) -> None:
    """The code is stable, the message says something, and the answer is a frame of its own."""
    bad = parse_from_plane(text)
    assert isinstance(bad, BadFrame)
    assert bad.code == code
    assert parse_from_daemon(render(bad.answer)) == ErrorFrame(code=code, message=bad.message)


@pytest.mark.parametrize("member", ["code", "message"])
@pytest.mark.parametrize("value", [None, 1, [], "", "x" * 5_000])
def test_an_error_frame_is_never_an_error(member: str, value: JsonValue) -> None:
    """Two peers must not tell each other for ever that they do not understand."""
    text = json.dumps({"type": "error", "code": "c", "message": "m", member: value})
    assert isinstance(parse_from_plane(text), ErrorFrame)
    assert isinstance(parse_from_daemon(text), ErrorFrame)


def _base(command_id: str) -> JsonObject:
    return {"command_id": command_id, "run_id": "r", "kind": "run.end"}


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"expires_in_ms": 0}, "expires_in_ms"),
        ({"expires_in_ms": -1}, "expires_in_ms"),
        ({"expires_in_ms": True}, "expires_in_ms"),
        ({"expires_in_ms": 10**18}, "expires_in_ms"),
        ({"expires_in_ms": "60"}, "expires_in_ms"),
        ({"delivered_to": "4f0c"}, "delivered_to"),
        ({"delivered_to": ["4f0c"]}, "delivered_to"),
        ({"delivered_to": [samples.JOURNAL.upper()]}, "delivered_to"),
        ({"data": []}, "data"),
        ({"kind": 1}, "kind"),
        ({"kind": ""}, "kind"),
        ({"traceparent": 1}, "traceparent"),
    ],
)
def test_a_wrong_command_with_a_usable_id_is_answered_for_good(members: JsonObject, named: str) -> None:
    """Its refusal is a remembered event, so everything that the event says is known."""
    raw: JsonObject = {**_base("c"), **members}
    invalid = parse_from_plane(json.dumps({"type": "command", **raw}))
    assert isinstance(invalid, InvalidCommand)
    assert (invalid.command_id, invalid.run_id) == ("c", "r")
    assert named in invalid.message
    digest = content_digest(raw["kind"], raw["run_id"], raw.get("data", {}))
    assert content_digest(*invalid.content) == digest


@pytest.mark.parametrize("run_id", [None, 7, "", "a b", "x" * 129])
def test_a_command_with_an_unusable_run_is_answered_too(run_id: JsonValue) -> None:
    """Its refusal belongs to no run; the plane learns by the command's id that it need not try again."""
    invalid = parse_from_plane(json.dumps({"type": "command", **_base("c"), "run_id": run_id}))
    assert isinstance(invalid, InvalidCommand)
    assert invalid.run_id is None
    assert invalid.content == ("run.end", run_id, {})


def test_a_trace_that_cannot_be_read_is_dropped() -> None:
    """W3C Trace Context: a bad traceparent never costs the call."""
    frame = parse_from_plane(json.dumps({"type": "command", **_base("c"), "traceparent": "00-zz"}))
    assert isinstance(frame, CommandFrame)
    assert frame.traceparent is None


_SPAN: Final = f"{'a' * 32}-{'b' * 16}-01"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (f"00-{_SPAN}", f"00-{_SPAN}"),
        (f"cc-{_SPAN}", f"00-{_SPAN}"),
        (f"cc-{_SPAN}-{'x' * 500_000}", f"00-{_SPAN}"),
        (f"00-{_SPAN}-more", None),
        (f"cc-{_SPAN}more", None),
        (f"ff-{_SPAN}", None),
        (f"00-{'0' * 32}-{'b' * 16}-01", None),
        (f"00-{'a' * 32}-{'0' * 16}-01", None),
        (f"00-{_SPAN}\n", None),
        (f"00-{_SPAN}".upper(), None),
    ],
)
def test_a_traceparent_is_read_as_w3c_has_it_and_has_no_more_than_its_fields(
    said: str, kept: str | None
) -> None:
    """I11: what a later version adds has no bound, and would make events that no frame has room for."""
    frame = parse_from_plane(json.dumps({"type": "command", **_base("c"), "traceparent": said}))
    assert isinstance(frame, CommandFrame)
    assert frame.traceparent == kept


def test_a_hello_of_another_version_is_recognised_whatever_it_says() -> None:
    """The plane can say `unsupported_protocol` to a daemon that it does not understand."""
    for protocol in (2, "1", None, 1.5):
        bad = parse_from_daemon(json.dumps({"type": "hello", "protocol": protocol}))
        assert isinstance(bad, BadFrame)
        assert bad.code == "unsupported_protocol"


def test_an_event_that_is_wrong_keeps_its_place() -> None:
    """It can be nacked, so that it does not hold up what follows; without a place it is an error."""
    event = samples.FROM_DAEMON[1]
    invalid = parse_from_daemon(changed(event, origin="moon"))
    assert isinstance(invalid, InvalidEvent)
    assert (invalid.journal_id, invalid.seq, invalid.chain) == (samples.JOURNAL, 1, samples.CHAIN)
    for member in ("journal_id", "seq", "chain"):
        assert isinstance(parse_from_daemon(changed(event, **{member: True})), BadFrame)


def test_messages_about_faults_never_quote_the_values() -> None:
    """What was sent may be secret."""
    secret = "hunter2-hunter2"
    raw = {"type": "command", **_base("c"), "expires_in_ms": secret, "delivered_to": [secret], "data": secret}
    invalid = parse_from_plane(json.dumps(raw))
    assert isinstance(invalid, InvalidCommand)
    assert secret not in invalid.message


def test_a_long_complaint_is_cut() -> None:
    """A frame with a thousand faults gets a message of bounded length."""
    invalid = parse_from_plane(
        json.dumps({"type": "command", **_base("c"), "delivered_to": list(range(1_000))})
    )
    assert isinstance(invalid, InvalidCommand)
    assert len(invalid.message) <= 500


def test_the_largest_seq_is_a_number_like_any_other() -> None:
    """2^63 - 1 is what SQLite keeps exactly."""
    assert parse_from_plane(f'{{"type":"ack","seq":{2**63 - 1}}}') == Ack(seq=2**63 - 1)
