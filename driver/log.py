"""The daemon's log: structlog events on standard error, JSON unless a person is looking.

Part of `driver`; imports its `outlet`, structlog and the standard library. Nothing that is logged may hurt
the work: what cannot be rendered is named by its event alone, what cannot be written is dropped and counted,
and whoever logs waits for neither. Values from outside are escaped, so that no tool's output can move a
terminal's cursor or forge a line; tracebacks show code, never locals.

The ids that lines share are bound by context (`structlog.contextvars`): the daemon binds its own, and whoever
carries out an attempt binds that (`about_call`).
"""

import json
import logging
import sys
import traceback
from collections.abc import Callable, Generator, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TextIO

import structlog

from driver.outlet import Outlet

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
LogFormat = Literal["auto", "json", "console"]

TEXT_CHARS_MAX: Final = 2_000
"""A longer text is cut."""
LINE_CHARS_MAX: Final = 16_000
"""A longer line, of very many or of nested values, shows its event alone."""
DROPPED: Final = "log_lines_dropped"
HEAD: Final = ("timestamp", "level", "event")
"""What a line for a person begins with."""

_ENCODER: Final = json.JSONEncoder(ensure_ascii=True, allow_nan=False, default=str)

_Event = MutableMapping[str, Any]
_Render = Callable[[_Event], str]


class Lines(Protocol):
    """Where lines go: `Output`, or an `Outlet`."""

    @property
    def dropped(self) -> int:
        """Lines that were not written since the start."""
        ...

    def write_line(self, line: str) -> None:
        """Take one line. Never raises."""
        ...


class Output:
    """A stream that takes whole lines and never raises. It waits for whoever reads them."""

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
        """Log the library's message template. Never raises."""
        try:
            text = str(record.msg)
        except Exception as error:  # noqa: BLE001 - a library may log anything
            text = type(error).__name__
        structlog.get_logger("library").log(record.levelno, "library_message", logger=record.name, text=text)


def configure(level: str, log_format: LogFormat, stream: TextIO | None = None) -> Output:
    """Set up logging for this process, and return where the lines go. `level` is one of `LEVELS`.

    Each line is written when it is logged: for what has no effect path. The daemon logs by `unhindered`.
    """
    output = Output(stream or sys.stderr)
    _configure(level, _renderer(log_format, stream or sys.stderr), output)
    return output


@contextmanager
def unhindered(level: str, log_format: LogFormat, stream: TextIO | None = None) -> Generator[Outlet]:
    """Set up logging that never waits for whoever reads it; at the end what waits is written, within a bound.

    `level` is one of `LEVELS`. `stream` has a descriptor; standard error, if it is not given.
    """
    written = stream or sys.stderr
    render = _renderer(log_format, written)
    outlet = Outlet(written.fileno(), lambda count: render(_dropped(count)))
    _configure(level, render, outlet, lasting=True)
    try:
        yield outlet
    finally:
        outlet.close()


def about_call(operation_id: str, run_id: str, attempt: int) -> None:
    """Bind whose attempt the current task, and what it starts, carries out to every line from now on."""
    structlog.contextvars.bind_contextvars(operation_id=operation_id, run_id=run_id, attempt=attempt)


def about_no_call() -> None:
    """Take that back, in a task that a call has started and that outlives it."""
    structlog.contextvars.unbind_contextvars("operation_id", "run_id", "attempt")


def _configure(level: str, render: _Render, lines: Lines, *, lasting: bool = False) -> None:
    """`lasting`: nobody sets up another log in this process, so that loggers need not look each time."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _trace,
            lambda _logger, _name, event: render(event),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_args: lines,
        cache_logger_on_first_use=lasting,
    )
    logging.basicConfig(handlers=[_LibraryHandler()], level=logging.WARNING, force=True)


def _renderer(log_format: LogFormat, stream: TextIO) -> _Render:
    console = log_format == "console" or (log_format == "auto" and stream.isatty())
    form = _console if console else _json

    def render(event: _Event) -> str:
        try:
            line = form(event)
            if (
                len(line) > TEXT_CHARS_MAX
            ):  # rarely: to look at each value first would double the cost of a line
                line = form({key: _cut(value) for key, value in event.items()})
            if len(line) <= LINE_CHARS_MAX:
                return line
            why = "too long"
        except Exception as error:  # noqa: BLE001 - whatever a value does when it is shown
            why = type(error).__name__
        known = {key: str(event.get(key, ""))[:100] for key in HEAD}
        return form({**known, "not_shown": why})

    return render


def _dropped(count: int) -> _Event:
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return {"event": DROPPED, "level": "warning", "timestamp": now, "lines": count}


def _cut(value: object) -> object:
    if isinstance(value, str) and len(value) > TEXT_CHARS_MAX:
        return value[:TEXT_CHARS_MAX] + "\N{HORIZONTAL ELLIPSIS}"
    return value


def _trace(_logger: object, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace an exception by its type and where it passed: no message, no locals, no source lines."""
    asked = event.pop("exc_info", None)
    error = sys.exc_info()[1] if asked is True else asked
    if isinstance(error, BaseException):
        frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
        places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        event["exception"] = " > ".join([*places, type(error).__name__])
    return event


def _json(event: _Event) -> str:
    """Render one event as one line for a machine: pure ASCII, without a control character."""
    # of all control characters only DEL is none to JSON
    return _ENCODER.encode(event).replace("\x7f", "\\u007f")


def _console(event: _Event) -> str:
    """Render one event as one line for a person."""
    time, level, name = (_printable(event.get(key, "")) for key in HEAD)
    values = (f"{_printable(key)}={_printable(event[key])}" for key in event if key not in HEAD)
    return " ".join([f"{time} {level:8} {name}", *values])


def _printable(value: object) -> str:
    text = str(value)
    if text.isprintable() and " " not in text and text:
        return text
    return ascii(text)
