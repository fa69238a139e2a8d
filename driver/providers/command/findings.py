"""What an attempt came to, read from its folder once its shim is gone.

Part of `driver.providers.command`; imports its `records`, `remains`, `cgroup`, `spool`, and
`driver.providers.readoption`. Everything here blocks: call it in a worker thread.
"""

import codecs
import signal
from pathlib import Path

import structlog

from driver.core.attempts import Answered, NotSent, Phase, Report, Silence
from driver.providers.command import cgroup, remains
from driver.providers.command.records import Ended, Origin
from driver.providers.command.spool import Place
from driver.providers.readoption import Finished, Lost
from store.records import JsonObject

log: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


def conclude(place: Place) -> Finished | Lost:
    """Return what became of an attempt whose shim is gone, and end what the shim could not end itself."""
    ended = place.ended()
    origin = place.origin()
    boot = remains.boot_id()
    if origin is not None and boot and origin.boot_id == boot:
        _clear(place, origin, ended)
    elif ended is None:
        return Lost(message="the machine was restarted, or the attempt's records are gone")
    if ended is not None:
        return _by_record(place, ended)
    if not place.has_started():
        # it is written before the program is executed, and in this very boot nothing can have lost it
        message = "the shim ended before it had executed the program"
        return Finished(report=NotSent(reason="spawn_failed", message=message), phase=Phase.CONNECTING)
    return Lost(message="the shim was killed while the program ran, and the program with it")


def _clear(place: Place, origin: Origin, ended: Ended | None) -> None:
    started = place.started()
    cleared = not (ended and ended.processes_left)
    if ended is None and started is not None and origin.namespace == remains.namespace():
        cleared = remains.end_program(started)
    if origin.cgroup is not None:
        # whatever the shim could not end itself: it was killed, or something belongs to another user
        cleared = cgroup.end(Path(origin.cgroup))
    if not cleared:
        log.warning("processes_survived", operation_id=place.operation_id, attempt=place.attempt)


def _by_record(place: Place, ended: Ended) -> Finished | Lost:
    if ended.never_executed is not None:
        message = f"the program could not be executed: {ended.never_executed}"
        return Finished(report=NotSent(reason="spawn_failed", message=message), phase=Phase.CONNECTING)
    if ended.cause is not None:
        return Finished(
            report=Silence(cause=ended.cause, message=_INTERRUPTED[ended.cause]), phase=Phase.WRITTEN
        )
    answer = _answer(place, ended)
    if answer is None:
        return Lost(message="the program ended, and what was kept of its output is gone")
    return Finished(report=answer, phase=Phase.ANSWERED)


_INTERRUPTED = {
    "deadline": "the program was still running at the deadline, and was ended with all that it had started",
    "cancelled": "the program was ended with all that it had started, because its call was cancelled",
}


def _answer(place: Place, ended: Ended) -> Report | None:
    stdout = place.output("stdout", ended.stdout_bytes)
    stderr = place.output("stderr", ended.stderr_bytes)
    if stdout is None or stderr is None:
        return None
    signalled = None if ended.signal is None else _signal_name(ended.signal)
    result: JsonObject = {
        "exit_code": ended.exit_code,
        "signal": signalled,
        **_as_text("stdout", stdout, truncated=ended.stdout_truncated),
        **_as_text("stderr", stderr, truncated=ended.stderr_truncated),
        "duration_ms": ended.duration_ms,
        "processes_ended": ended.processes_ended,
    }
    if ended.ok:
        return Answered(result=result)
    return Answered(
        result=result,
        is_error=True,
        code=signalled or f"exit_{ended.exit_code}",
        interrupted=signalled is not None,
    )


def _as_text(name: str, data: bytes, *, truncated: bool) -> JsonObject:
    """Return an output as text. A character that the limit has cut in two is left out, and is no fault."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=not truncated)
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(data, final=not truncated)
        invalid = False
    except UnicodeDecodeError:
        invalid = True
    return {name: text, f"{name}_truncated": truncated, f"{name}_invalid_utf8": invalid}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
