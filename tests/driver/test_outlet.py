"""Whoever logs waits for nobody: not for a full pipe, not for a closed one, not for a full disk."""

import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import structlog

from driver.log import DROPPED, configure, unhindered
from driver.outlet import LINES_MAX, Outlet

PATIENCE_S: Final = 60.0
MANY: Final = 5_000
"""Lines: more than a pipe and the queue hold together."""
TEXT: Final = "x" * 200


@contextmanager
def pipe() -> Generator[tuple[int, int]]:
    """A pipe; whichever end is still open is closed."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            try:
                os.close(end)
            except OSError:
                continue


@contextmanager
def logging_to(descriptor: int) -> Generator[Outlet]:
    """Log as the daemon does, to this descriptor."""
    with os.fdopen(os.dup(descriptor), "w") as stream, unhindered("info", "json", stream) as made:
        yield made


def lines_of(text: bytes) -> list[dict[str, Any]]:
    """Every line of it: each is whole, or this fails."""
    return [json.loads(line) for line in text.splitlines()]


def until(reached: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.001)


def everything(descriptor: int) -> tuple[threading.Thread, list[bytes]]:
    """Read all that comes out, in a thread, to the end."""
    found: list[bytes] = []

    def read() -> None:
        while chunk := os.read(descriptor, 65_536):
            found.append(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    return reader, found


def test_lines_come_out_whole_and_in_order() -> None:
    """Up to the bound nothing is lost, and the end of the block waits for what was logged last."""
    with pipe() as (reading, writing):
        reader, found = everything(reading)
        with logging_to(writing) as made:
            for number in range(LINES_MAX // 2):
                structlog.get_logger().info("happened", number=number)
        os.close(writing)
        reader.join()
    assert [line["number"] for line in lines_of(b"".join(found))] == list(range(LINES_MAX // 2))
    assert made.dropped == 0


def test_a_reader_that_has_stopped_holds_nobody_up_and_hears_what_it_missed() -> None:
    """A full pipe: logging goes on at once, what has no room is counted, and the next line says how many."""
    with pipe() as (reading, writing):
        with logging_to(writing) as made:
            for number in range(MANY):
                structlog.get_logger().info("happened", number=number, text=TEXT)
            missed = made.dropped
            assert missed > 0
            reader, found = everything(reading)
            until(made._lines.empty)
            structlog.get_logger().info("back")
        os.close(writing)
        reader.join()
    lines = lines_of(b"".join(found))
    assert [line["lines"] for line in lines if line["event"] == DROPPED] == [missed]
    assert lines[-1]["event"] == "back"
    assert len(lines) == MANY - missed + 2


def test_a_stopped_reader_does_hold_up_who_writes_by_himself() -> None:
    """Negative control: the same lines, each written when it is logged, never end."""
    with pipe() as (reading, writing), os.fdopen(os.dup(writing), "w") as stream:
        configure("info", "json", stream)

        def write() -> None:
            for number in range(MANY):
                structlog.get_logger().info("happened", number=number, text=TEXT)

        writer = threading.Thread(target=write)
        writer.start()
        writer.join(0.5)
        assert writer.is_alive()
        reader, _found = everything(reading)
        writer.join()
        os.close(writing)
        stream.close()
        reader.join()


def test_a_closed_pipe_raises_nothing_and_is_counted() -> None:
    """Nobody reads any more: every line is dropped."""
    with pipe() as (reading, writing):
        os.close(reading)
        with logging_to(writing) as made:
            for number in range(10):
                structlog.get_logger().info("happened", number=number)
        assert made.dropped == 10


def test_a_full_disk_raises_nothing_and_is_counted() -> None:
    """No byte of any line fits."""
    descriptor = os.open("/dev/full", os.O_WRONLY)
    with logging_to(descriptor) as made:
        for number in range(10):
            structlog.get_logger().info("happened", number=number)
    os.close(descriptor)
    assert made.dropped == 10


def test_a_disk_that_has_room_again_is_told_what_it_missed(tmp_path: Path) -> None:
    """The line that did not fit ends where it was cut, and the next ones are whole."""
    path = tmp_path / "log"
    program = (
        "import resource, signal, sys; import structlog; from driver.log import unhindered\n"
        "from driver import outlet\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))\n"
        "with unhindered('info', 'json') as made:\n"
        "    structlog.get_logger().info('small')\n"
        "    structlog.get_logger().info('large', text='x' * 200)\n"
        "    while made.dropped == 0: pass\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "    structlog.get_logger().info('again')\n"
    )
    with path.open("wb") as stream:
        subprocess.run([sys.executable, "-c", program], stderr=stream, check=True, timeout=PATIENCE_S)
    whole = [line for line in path.read_bytes().splitlines() if line.endswith(b"}")]
    events = [json.loads(line)["event"] for line in whole]
    assert events[-2:] == [DROPPED, "again"]
    assert b"large" not in b"".join(whole)


def test_the_end_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that never reads again costs the bound, and the lines."""
    monkeypatch.setattr("driver.outlet.FLUSH_S", 0.05)
    with pipe() as (reading, writing):
        with logging_to(writing) as made:
            for number in range(MANY):
                structlog.get_logger().info("happened", number=number, text=TEXT)
            assert made._thread.is_alive()
        assert made._thread.is_alive(), "it still waits, and nobody waits for it"
        os.close(reading)
        until(lambda: not made._thread.is_alive())


def test_a_terminal_that_was_stopped_holds_nobody_up() -> None:
    """Ctrl-S on the terminal that the daemon was started from does not stop the daemon."""
    ours, theirs = pty.openpty()
    try:
        with logging_to(theirs) as made:
            for number in range(MANY):
                structlog.get_logger().info("happened", number=number, text=TEXT)
            assert made.dropped > 0
            reader = threading.Thread(target=_drain, args=(ours,), daemon=True)
            reader.start()
            until(made._lines.empty)
    finally:
        os.close(theirs)
        os.close(ours)


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 65_536):
            pass
    except OSError:
        return


def test_what_is_logged_after_the_end_is_counted() -> None:
    """A thread that is late raises nothing."""
    with pipe() as (_reading, writing):
        with logging_to(writing) as made:
            pass
        structlog.get_logger().info("late")
        assert made.dropped == 1
