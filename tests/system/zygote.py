"""A warm process that forks one child for each life of the daemon, so that a start does not pay for imports.

Run as `python -m tests.system.zygote FD`: FD is a socket on which each packet is one JSON request, with two
descriptors beside it: where the child's output goes, and where the zygote reports, one JSON line each,

    {"pid": 4711}            once it was forked
    {"code": -9}             once it was reaped: the exit code, or minus the signal

It never has a second thread, and its children run exactly what the executable `effectd` runs, with its
arguments. Orphans of killed daemons become its children (a subreaper), so that they are reaped. When the test
process goes away, it kills what is left and ends.

`patch` in a request names one of `tests.system.patches`: a mechanism that is taken away after the fork, for
the negative controls.

With a further argument, `brisk`, a child that has come to its end waits for its threads, runs what is to be
run at an exit, and is gone: an interpreter that takes itself apart first costs as much as a life before it.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

ROOT: Final = Path(__file__).resolve().parents[2]
REQUEST_BYTES_MAX: Final = 65_536
PR_SET_CHILD_SUBREAPER: Final = 36
ENTRY: Final = "driver.cli.main"

PRELOADED: Final = (
    ENTRY,
    "driver.cli.run",
    "driver.cli.verify",
    "driver.daemon",
    "driver.providers.mcp.provider",
    "driver.providers.command.provider",
    "driver.providers.http.provider",
    # what the libraries import at first use
    "anyio._backends._asyncio",
    "anyio._core._signals",
    "anyio._core._subprocesses",
    "httpcore2",
    "truststore",
    "uvicorn.lifespan.off",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.h11_impl",
    "websockets.asyncio.client",
    "tests.system.patches",
)
BRISK: Final = "brisk"


@dataclass(slots=True)
class _Nursery:
    """The zygote's own side: its socket, and a pidfd and a report descriptor for each child."""

    requests: socket.socket
    reports: dict[int, int] = field(default_factory=dict[int, int])
    pidfds: dict[int, int] = field(default_factory=dict[int, int])

    def serve(self) -> list[str] | None:
        """Fork on request until the requests end. Returns the daemon's arguments in each child; else None."""
        while True:
            readable, _, _ = select.select([self.requests.fileno(), *self.pidfds.values()], [], [])
            self._reap()
            if self.requests.fileno() not in readable:
                continue
            packet, descriptors, _, _ = socket.recv_fds(self.requests, REQUEST_BYTES_MAX, 2)
            if not packet:
                self._end()
                return None
            arguments = self._fork(json.loads(packet), *descriptors)
            if arguments is not None:
                return arguments

    def _fork(self, request: dict[str, Any], output: int, report: int) -> list[str] | None:
        pid = os.fork()
        if pid == 0:
            for descriptor in (report, *self.reports.values(), *self.pidfds.values(), self.requests.detach()):
                os.close(descriptor)
            _settle_in(request, output)
            return list(request["arguments"])
        os.close(output)
        self.reports[pid] = report
        self.pidfds[pid] = os.pidfd_open(pid)
        _say(report, pid=pid)
        return None

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.reports:
                report = self.reports.pop(pid)
                _say(report, code=os.waitstatus_to_exitcode(status))
                os.close(report)
                os.close(self.pidfds.pop(pid))

    def _end(self) -> None:
        for pid in self.reports:
            os.kill(pid, signal.SIGKILL)


def _say(report: int, **values: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(report, json.dumps(values).encode() + b"\n")


def _settle_in(request: dict[str, Any], output: int) -> None:
    """Make the forked copy a process like one that a shell started."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # what was made for the zygote's own output may take this one for a file that it could seek in
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    os.close(null)
    os.close(output)
    os.environ.update(request["env"])
    if request["patch"] is not None:
        patches = importlib.import_module("tests.system.patches")
        patches.apply(request["patch"])


def _main() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    gc.collect()
    gc.freeze()
    arguments = _Nursery(socket.socket(fileno=int(sys.argv[1]))).serve()
    if arguments is not None:
        is_brisk = BRISK in sys.argv
        sys.argv = ["effectd", *arguments]
        main = importlib.import_module(ENTRY).main
        if is_brisk:
            _end_briskly(main)
        sys.exit(main())


def _end_briskly(main: Callable[[], int | None]) -> NoReturn:
    """Run it, and end as an interpreter does, but without taking modules and objects apart."""
    try:
        sys.exit(main())
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else bool(end.code)
    exiting: Any = (threading, atexit)
    exiting[0]._shutdown()
    exiting[1]._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Zygote:
    """The test's side: starts the warm process, and asks it for lives.

    `is_brisk`: for whoever needs very many of them; see the module.
    """

    def __init__(self, *, is_brisk: bool = False) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests = ours
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.system.zygote",
                str(theirs.fileno()),
                *([BRISK] if is_brisk else []),
            ],
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()

    @property
    def pid(self) -> int:
        """The process whose children are the lives, and the orphans of killed ones."""
        return self._process.pid

    def fork(self, arguments: list[str], *, env: dict[str, str], patch: str | None, output: int) -> int:
        """Ask for `effectd ARGUMENTS` with its output to `output`; return the descriptor of its reports."""
        reader, writer = os.pipe()
        request = {"arguments": arguments, "env": env, "patch": patch}
        socket.send_fds(self._requests, [json.dumps(request).encode()], [output, writer])
        os.close(writer)
        return reader

    def close(self) -> None:
        """End the process, and with it every life that is left."""
        self._requests.close()
        self._process.wait(timeout=60)


if __name__ == "__main__":
    _main()
