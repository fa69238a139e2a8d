"""A log line can neither hurt the work nor lie about where it ends."""

import contextlib
import io
import json
import logging
from pathlib import Path

import pytest
import structlog

from driver.log import configure


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
