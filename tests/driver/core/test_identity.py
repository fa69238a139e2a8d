"""Ids and digests: what they depend on, and what they do not."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.core.identity import (
    args_digest,
    content_digest,
    is_id,
    is_plane_command_id,
    operation_id,
)
from store.records import CommandId, Digest, JsonObject, RunId
from tests.driver.core import json_values

ids = st.from_regex(r"[A-Za-z0-9._:-]{1,128}", fullmatch=True)


def test_an_operation_id_is_the_protocols_hash() -> None:
    """The first 32 hex digits of SHA-256 over scope, run and command, with zero bytes between."""
    expected = hashlib.sha256(b"prod\x00run-1\x00cmd-9").hexdigest()[:32]
    assert operation_id("prod", RunId("run-1"), CommandId("cmd-9")) == f"op_{expected}"


@given(st.tuples(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), ids, ids))
def test_an_operation_id_is_syntactically_an_id(parts: tuple[str, str, str]) -> None:
    """It can be named by a command."""
    scope, run, command = parts
    assert is_id(operation_id(scope, RunId(run), CommandId(command)))


@given(st.tuples(ids, ids), st.tuples(ids, ids))
def test_two_commands_never_share_an_operation(left: tuple[str, str], right: tuple[str, str]) -> None:
    """The separator cannot stand in an id, so no two pairs run together into one."""
    names = [operation_id("s", RunId(run), CommandId(command)) for run, command in (left, right)]
    assert (names[0] == names[1]) == (left == right)


def test_the_ids_of_compensations_are_reserved() -> None:
    """A plane can send no command under the one id that an operation's compensation has."""
    name = "compensate:op_" + "0" * 32
    assert is_id(name)
    assert not is_plane_command_id(name)


@given(ids)
def test_ids_of_the_alphabet_are_usable(text: str) -> None:
    """1 to 128 characters of the alphabet."""
    assert is_id(text)


@pytest.mark.parametrize("text", ["", "a" * 129, "a b", "a/b", "ä", "a\n", "\n", "a\0", "\uff11", "a,b"])
def test_other_texts_are_no_ids(text: str) -> None:
    """Nothing outside the alphabet, no trailing newline, no digit of another script."""
    assert not is_id(text)


def test_the_digest_of_arguments_is_over_the_canonical_pair() -> None:
    """Tool and arguments in one list, in RFC 8785 form."""
    expected = hashlib.sha256(b'["a/b",{"x":1,"y":[]}]').hexdigest()
    assert args_digest("a/b", {"y": [], "x": 1.0}) == expected


def test_a_digest_can_be_made_under_a_key() -> None:
    """Of the same bytes: whoever has the key finds the same command and the same arguments again."""
    seen: list[bytes] = []

    def keyed(data: bytes) -> Digest:
        seen.append(data)
        return Digest("k" * 64)

    assert args_digest("a/b", {"x": 1}, keyed) == content_digest("k", "r", {"x": 1}, keyed) == "k" * 64
    assert seen == [b'["a/b",{"x":1}]', b'["k","r",{"x":1}]']


@given(json_values.objects)
def test_contents_that_python_calls_equal_are_told_apart(data: JsonObject) -> None:
    """`true` for 1 is other content; 1.0 for 1 is the same."""
    one, real, true = ({**data, "n": value} for value in (1, 1.0, True))
    assert content_digest("k", "r", one) == content_digest("k", "r", real)
    assert content_digest("k", "r", one) != content_digest("k", "r", true)


def test_the_digest_of_content_counts_everything() -> None:
    """Kind, run, unknown members, and null against absent each make a difference."""
    base = content_digest("run.end", "r", {})
    others = [
        content_digest("run.cancel", "r", {}),
        content_digest("run.end", "r2", {}),
        content_digest("run.end", "r", {"x": 1}),
        content_digest("run.end", "r", {"outcome": None}),
        content_digest("run.end", "r", None),
    ]
    assert base == hashlib.sha256(b'["run.end","r",{}]').hexdigest()
    assert len({base, *others}) == 6
