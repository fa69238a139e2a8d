"""Whatever a file says: it is a configuration, or a ConfigError, and never anything else."""

import copy
import tomllib
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from driver.config.contracts import contracts
from driver.config.document import KINDS
from driver.config.errors import ConfigError, ConfigInvalid
from driver.config.load import parse, validate
from driver.config.models import Config
from driver.core.contracts import Contracts

HERE = Path("/etc/effectd/effectd.toml")
EXAMPLE_TEXT = Path(__file__).with_name("example.toml").read_text(encoding="utf-8")
EXAMPLE = cast("dict[str, object]", tomllib.loads(EXAMPLE_TEXT))

TELLING: list[object] = [
    *("", "=", "=a[", "a/b", "../x", "~", "ws://", "wss://h:x", "http://[", "header:", "read", "rules", "\0"),
    *KINDS,
    *(10**400, -(2**63), date(2026, 1, 1), time(1), datetime(2026, 1, 1, tzinfo=UTC)),
]
values = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(TELLING),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def table(value: object) -> dict[str, object]:
    """Return `value` where it is a table, and an empty one where not."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def places(document: dict[str, object], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each key of the document, tables among them."""
    for key, value in document.items():
        yield (*path, key)
        yield from places(table(value), (*path, key))


PLACES = sorted(places(EXAMPLE))


@st.composite
def mutations(draw: st.DrawFn) -> dict[str, object]:
    """Return the example with a few keys changed, removed, renamed or added."""
    document = copy.deepcopy(EXAMPLE)
    for path in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=4)):
        owner = document
        for part in path[:-1]:
            owner = table(owner.get(part))
        match draw(st.sampled_from(["change", "remove", "rename", "add"])):
            case "change":
                owner[path[-1]] = draw(values)
            case "remove":
                owner.pop(path[-1], None)
            case "rename":
                owner[draw(st.text(max_size=8))] = owner.pop(path[-1], 0)
            case _:
                owner[draw(st.text(max_size=8))] = draw(values)
    return document


def cut(position: int, typed: str) -> str:
    """Return the example up to `position`, and what was typed there."""
    return EXAMPLE_TEXT[:position] + typed


def outcome(read: Callable[[], Config]) -> Config | ConfigError:
    """Return the configuration, or the one kind of error that a file may have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)  # JMESPath has literals of an older form
        try:
            return read()
        except ConfigError as error:
            return error


@given(mutations())
def test_a_changed_document_is_valid_or_says_why_not(document: dict[str, object]) -> None:
    """No mutation of a valid document raises anything but ConfigInvalid, with a text of printable lines."""
    match outcome(lambda: validate(document, HERE)):
        case Config() as config:
            assert isinstance(contracts(config), Contracts)
        case error:
            assert isinstance(error, ConfigInvalid)
            assert error.problems
            assert all(line.isprintable() for line in str(error).splitlines())


@given(st.text(max_size=60) | st.builds(cut, st.integers(0, len(EXAMPLE_TEXT)), st.text(max_size=4)))
def test_any_text_is_a_configuration_or_a_config_error(text: str) -> None:
    """A file that was cut, or had something typed into it, never crashes the loader."""
    assert isinstance(outcome(lambda: parse(text, HERE)), Config | ConfigInvalid)
