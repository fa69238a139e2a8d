"""A log line can neither hurt the work nor lie about where it ends."""

import contextlib
import io
import json
import logging
from pathlib import Path
from typing import Literal

import pytest
import structlog

from driver.log import LINE_CHARS_MAX, TEXT_CHARS_MAX, about_call, about_no_call, configure


def test_a_line_is_one_json_object() -> None:
    """Values stand as keys, whatever they contain."""
    stream = io.StringIO()
    configure("info", "auto", stream)
    structlog.get_logger().info("happened", value="\x1b[31m\nforged=1")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["value"] == "\x1b[31m\nforged=1"


def test_a_line_for_a_person_has_no_control_characters() -> None:
    """What a tool said can neither move the cursor nor begin a line of its own."""
    stream = io.StringIO()
    configure("info", "console", stream)
    structlog.get_logger().info("happened", value="\x1b[31m\nforged=1")
    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()
    assert "\\x1b[31m\\nforged=1" in line


def test_a_full_disk_raises_nothing_and_is_counted() -> None:
    """The effect path never fails because its log does."""
    full = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115 - its close fails too, on purpose
    output = configure("info", "json", full)
    structlog.get_logger().info("happened")
    assert output.dropped == 1
    with contextlib.suppress(OSError):
        full.close()
    structlog.get_logger().info("closed")
    assert output.dropped == 2


@pytest.mark.parametrize("form", ["json", "console"])
def test_an_exception_shows_no_values(form: str) -> None:
    """Neither its message nor the locals around it: either may hold what a tool was called with."""
    stream = io.StringIO()
    configure("info", "json" if form == "json" else "console", stream)
    secret = "hunter2"
    try:
        raise ValueError(secret)
    except ValueError:
        structlog.get_logger().exception("failed")
    assert "test_log.py" in stream.getvalue()
    assert "ValueError" in stream.getvalue()
    assert secret not in stream.getvalue()


def test_a_library_is_heard_without_its_arguments() -> None:
    """Its template says what is wrong; what it was about stays where it was."""
    stream = io.StringIO()
    configure("info", "json", stream)
    logging.getLogger("a.library").warning("could not parse %s", "secret")
    assert "could not parse %s" in stream.getvalue()
    assert "secret" not in stream.getvalue()


def test_the_level_is_a_floor() -> None:
    """Below it nothing is rendered."""
    stream = io.StringIO()
    configure("warning", "json", stream)
    structlog.get_logger().info("happened")
    assert stream.getvalue() == ""


class Hostile:
    """A value that does not want to be shown."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


def _circle() -> dict[str, object]:
    circle: dict[str, object] = {}
    circle["self"] = circle
    return circle


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(Hostile(), id="hostile"),
        pytest.param({("a", 1): 2}, id="keys"),
        pytest.param(_circle(), id="circle"),
        pytest.param(float("nan"), id="nan"),
        pytest.param("\ud800", id="surrogate"),
        pytest.param({str(n): "x" * 100 for n in range(1_000)}, id="large"),
        pytest.param(b"\xff\x1b", id="bytes"),
    ],
)
def test_no_value_raises_and_each_line_is_whole(form: Literal["json", "console"], value: object) -> None:
    """Whatever stands in it, one line comes out, bounded, that says what happened."""
    stream = io.StringIO()
    configure("info", form, stream)
    structlog.get_logger().info("happened", value=value)
    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()
    assert len(line) <= LINE_CHARS_MAX
    assert json.loads(line)["event"] == "happened" if form == "json" else " happened " in line


CONTROLS = "".join(map(chr, [*range(32), *range(0x7F, 0xA0), 0x2028, 0x202E, 0x200F, 0xFEFF]))


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize("where", ["value", "event", "nested", "bound"])
def test_nothing_that_moves_a_terminal_comes_through(form: Literal["json", "console"], where: str) -> None:
    """All control characters, line separators and marks of direction, wherever they stand."""
    stream = io.StringIO()
    configure("info", form, stream)
    log = structlog.get_logger()
    match where:
        case "value":
            log.info("happened", value=CONTROLS)
        case "event":
            log.info(CONTROLS)
        case "nested":
            log.info("happened", value={CONTROLS: [CONTROLS]})
        case _:
            with structlog.contextvars.bound_contextvars(tool=CONTROLS):
                log.info("happened")
    text = stream.getvalue()
    assert text.endswith("\n")
    assert text[:-1].isascii()
    assert text[:-1].isprintable()


def test_a_long_text_is_cut() -> None:
    """One answer of a tool does not fill the disk."""
    stream = io.StringIO()
    configure("info", "json", stream)
    structlog.get_logger().info("happened", value="x" * 1_000_000)
    assert len(json.loads(stream.getvalue())["value"]) == TEXT_CHARS_MAX + 1


def test_a_library_that_logs_what_cannot_be_shown_raises_nothing() -> None:
    """Its line says so much."""
    stream = io.StringIO()
    configure("info", "json", stream)
    logging.getLogger("a.library").warning(Hostile())
    assert json.loads(stream.getvalue())["text"] == "RuntimeError"


def test_a_line_says_whose_attempt_it_is_about_until_that_is_taken_back() -> None:
    """What a call has started and that outlives it is not about that call."""
    stream = io.StringIO()
    configure("info", "json", stream)
    with structlog.contextvars.bound_contextvars(driver_id="sbx-1"):
        about_call("op_1", "run-1", 2)
        structlog.get_logger().info("happened")
        about_no_call()
        structlog.get_logger().info("happened")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["operation_id"], first["run_id"], first["attempt"]) == ("op_1", "run-1", 2)
    assert second.keys() & {"operation_id", "run_id", "attempt"} == set()
    assert first["driver_id"] == second["driver_id"] == "sbx-1"
