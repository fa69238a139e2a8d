"""The daemon's log: structlog events on standard error, JSON unless a person is looking.

Part of `driver`; imports only structlog and the standard library. Nothing that is logged may hurt the work:
a line that cannot be written (a full disk, a closed pipe) is dropped and counted, never raised. Values from
outside are escaped, so that no tool's output can move a terminal's cursor or forge a line; tracebacks show
code, never locals.
"""

import logging
import sys
import traceback
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final, Literal, TextIO

import structlog

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
LogFormat = Literal["auto", "json", "console"]


class Output:
    """A stream that takes whole lines and never raises."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.dropped = 0
        """Lines that could not be written since the start."""

    def write_line(self, line: str) -> None:
        """Write one line and flush it; count it where that fails."""
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self.dropped += 1

    # structlog calls the method that is named like the level
    msg = debug = info = warning = error = critical = exception = fatal = log = write_line


class _LibraryHandler(logging.Handler):
    """Passes on that a library complained, without its arguments: they may hold a tool's."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log the library's message template."""
        structlog.get_logger("library").log(
            record.levelno, "library_message", logger=record.name, text=str(record.msg)
        )


def configure(level: str, log_format: LogFormat, stream: TextIO | None = None) -> Output:
    """Set up logging for this process, and return where the lines go. `level` is one of `LEVELS`."""
    output = Output(stream or sys.stderr)
    console = log_format == "console" or (log_format == "auto" and (stream or sys.stderr).isatty())
    render: Any = _console if console else structlog.processors.JSONRenderer(ensure_ascii=True, default=str)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _trace,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_args: output,
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_LibraryHandler()], level=logging.WARNING, force=True)
    return output


def _trace(_logger: object, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace an exception by its type and where it passed: no message, no locals, no source lines."""
    asked = event.pop("exc_info", None)
    error = sys.exc_info()[1] if asked is True else asked
    if isinstance(error, BaseException):
        frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
        places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        event["exception"] = " > ".join([*places, type(error).__name__])
    return event


def _console(_logger: object, _name: str, event: MutableMapping[str, Any]) -> str:
    """Render one event as one line for a person."""
    head = f"{event.pop('timestamp', '')} {event.pop('level', ''):8} {event.pop('event', '')}"
    return " ".join([head, *(f"{key}={_printable(value)}" for key, value in event.items())])


def _printable(value: object) -> str:
    text = str(value)
    if text.isprintable() and " " not in text and text:
        return text
    return ascii(text)
