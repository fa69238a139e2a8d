"""A server's process: started with a scrubbed environment, ended with everything that it started.

Part of `driver.providers.mcp`; imports its `settings`, `driver.providers.environment`, `driver.reading`, and
`driver.core` for what a log must not show. Nothing here knows what goes through the pipes.

    SpawnFailed    the server could not be started: nothing of any call left

Theory of operation
-------------------
The three pipes are our own, and not those of asyncio's subprocess support, for two reasons: only a write of
our own tells how much of a message has left, and no buffer of a library stands between the cap on a message
and the pipe. Our ends do not block; the child's ends do.

The child leads a session and a process group, so that all that it starts can be ended with it. When the
daemon is killed, the child's stdin ends, which ends a well-behaved server, and the kernel kills it (`setpriv
--pdeathsig`), which ends any other: a tool that goes on behind the back of the next daemon would be an effect
that nobody awaits. In the milliseconds until `setpriv` has run, only the end of its stdin ends it; no call
has been sent by then.
"""

import os
import select
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import anyio
import structlog
from anyio.abc import Process

from driver.core.scrubbing import WHOLE_MIN, Scrubber
from driver.providers.environment import environment
from driver.providers.mcp.settings import StdioServer
from driver.providers.value_files import ValueFileUnusable
from driver.reading import Reader

POLITE_EXIT_S: Final = 2.0
"""From the end of its stdin until SIGTERM goes to its group."""
TERM_EXIT_S: Final = 2.0
"""From SIGTERM until SIGKILL."""
KILL_EXIT_S: Final = 2.0
"""From SIGKILL until we stop waiting for the kernel."""
EXIT_AFTER_OUTPUT_S: Final = 0.2
"""How long an exit status is waited for behind the end of the output; it only makes a message better."""
CHUNK_BYTES: Final = 65_536
"""What is read at once: the capacity of a pipe."""
STDERR_LINE_BYTES_MAX: Final = 1_000
"""A line of a server's stderr is logged up to this."""
STDERR_LINES_MAX: Final = 64
"""Lines that are logged of what is read of stderr at once; more than these are counted."""
STDERR_REST_S: Final = 0.01
"""The rest after each read of a full `CHUNK_BYTES`: whoever floods stderr is read at 6 MB a second."""

_SETPRIV: Final = "/usr/bin/setpriv"

log: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class SpawnFailed(Exception):
    """The server could not be started: nothing of any call left."""

    def __init__(self, provider: str, detail: str) -> None:
        self.provider = provider
        super().__init__(f"the server of provider {provider} cannot be started: {detail}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launch:
    """What is handed to the kernel."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    secrets: tuple[str, ...]
    """The values of its environment that a log must not show."""


class Child:
    """A running server. Use `start`; whoever starts one closes it, in the same task."""

    def __init__(self, provider: str, process: Process, pipes: tuple[int, int, int], told: "_Told") -> None:
        self._provider = provider
        self._process = process
        self._stdin: int | None
        self._stdin, self._stdout, self._stderr = pipes
        self._told = told
        self._output = Reader(self._stdout, lambda: os.read(self._stdout, CHUNK_BYTES))

    @classmethod
    async def start(cls, provider: str, server: StdioServer) -> Self:
        """Return the started server. Raises `SpawnFailed`."""
        launch = await anyio.to_thread.run_sync(_prepare, provider, server)
        try:
            (theirs_in, ours_in), (ours_out, theirs_out), (ours_err, theirs_err) = _pipes()
        except OSError as error:
            raise SpawnFailed(provider, f"no pipes to it can be made: {error.strerror}") from error
        ours, theirs = (ours_in, ours_out, ours_err), (theirs_in, theirs_out, theirs_err)
        for fd in ours:
            os.set_blocking(fd, False)
        try:
            # in this thread, not in a worker: the kernel ties the child's life to the thread that starts it
            process = await anyio.open_process(
                launch.argv,
                stdin=theirs_in,
                stdout=theirs_out,
                stderr=theirs_err,
                env=launch.env,
                cwd=launch.cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            _close_all(ours)
            raise SpawnFailed(provider, str(error)) from error
        except BaseException:
            _close_all(ours)
            raise
        finally:
            _close_all(theirs)
        return cls(provider, process, ours, _Told(server, launch.secrets))

    @property
    def pid(self) -> int:
        """The process id, which is also that of its session and group."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """The exit status once it is known: negative for a signal."""
        return self._process.returncode

    async def exited(self) -> int | None:
        """Return the exit status of a server whose output has ended, None where it lingers all the same."""
        await self._exits_within(EXIT_AFTER_OUTPUT_S)
        return self.exit_status

    def can_take(self) -> bool:
        """True where at least one byte can be written now. Raises `BrokenPipeError` where nobody reads."""
        return _can_take(self._writing_end())

    def write_some(self, data: memoryview) -> int:
        """Return how many bytes of `data` the pipe took, 0 where it is full. Raises `OSError`."""
        try:
            return os.write(self._writing_end(), data)
        except BlockingIOError:
            return 0

    async def writable(self) -> None:
        """Wait until `can_take` has something new to say."""
        await anyio.wait_writable(self._writing_end())

    async def receive(self) -> bytes:
        """Return the next bytes of stdout, none at its end.

        It ends with the server, too, once all that it wrote was read: what it started and left behind may
        hold the pipe open for ever. `watch` must run beside this.
        """
        return await self._output.receive()

    async def watch(self) -> None:
        """Wait for the server's exit, and let `receive` look whether there is anything left to read."""
        await self._process.wait()
        self._output.end()

    async def log_stderr(self) -> None:
        """Drain stderr to its end, so that the server does not wait for us; lines are debug events, cut.

        It shows no value of the environment, and nothing at all where calls of this server hold secrets.
        """
        rest = b""
        while chunk := await _receive(self._stderr):
            *lines, rest = (rest + chunk).split(b"\n", STDERR_LINES_MAX)
            skipped = rest.count(b"\n")
            rest = rest.rpartition(b"\n")[2][-STDERR_LINE_BYTES_MAX:]
            for line in lines:
                log.debug("server_stderr", provider=self._provider, pid=self.pid, text=self._told.text(line))
            if skipped:
                log.debug("server_stderr_skipped", provider=self._provider, pid=self.pid, lines=skipped)
            # what is always ready to be read would never let anybody else run
            await anyio.sleep(STDERR_REST_S if len(chunk) == CHUNK_BYTES else 0)

    async def close(self, *, politely: bool) -> None:
        """End the server and all of its group: close stdin, then SIGTERM, then SIGKILL. At most 6 s.

        `politely`: it has `POLITE_EXIT_S` for an exit of its own before it is sent any signal.

        Nobody else may be reading its pipes any more. A cancelled caller waits for it all the same.
        """
        self._output.close()
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as draining:
                draining.start_soon(_discard, self._stdout)
                draining.start_soon(_discard, self._stderr)
                await self._end(politely=politely)
                draining.cancel_scope.cancel()
            _close_all((self._stdout, self._stderr))
            if self.exit_status is None:
                log.warning("server_survived_sigkill", provider=self._provider, pid=self.pid)
            else:
                await self._process.aclose()
        log.debug("server_ended", provider=self._provider, pid=self.pid, exit_status=self.exit_status)

    async def _end(self, *, politely: bool) -> None:
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None
        if not politely or not await self._exits_within(POLITE_EXIT_S):
            self._signal_group(signal.SIGTERM)
            if not await self._exits_within(TERM_EXIT_S):
                self._signal_group(signal.SIGKILL)
                await self._exits_within(KILL_EXIT_S)
        self._signal_group(signal.SIGKILL)  # what it started and left behind

    async def _exits_within(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self._process.wait()
        return self._process.returncode is not None

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return  # all gone
        except PermissionError:
            # a member that changed its user; the others were signalled
            log.warning("server_group_not_signalled", provider=self._provider, pid=self.pid)

    def _writing_end(self) -> int:
        if self._stdin is None:
            raise BrokenPipeError
        return self._stdin


def _prepare(provider: str, server: StdioServer) -> _Launch:
    """Read what the start needs from disk. Runs in a worker thread. Raises `SpawnFailed`."""
    try:
        env = environment(server.env, server.env_files)
    except ValueFileUnusable as error:
        raise SpawnFailed(provider, str(error)) from error
    if not server.cwd.is_dir():
        raise SpawnFailed(provider, f"its cwd {server.cwd} is no folder")
    program = shutil.which(_absolute(server.argv[0], server.cwd), path=env.get("PATH"))
    if program is None:
        raise SpawnFailed(provider, f"there is no program {server.argv[0]!r} on its PATH that may be run")
    argv = (program, *server.argv[1:])
    if Path(_SETPRIV).exists():
        argv = (_SETPRIV, "--pdeathsig", "KILL", "--", *argv)
    # what is short, and stands in the configuration itself, is a switch
    values = (value for value in server.env.values() if len(value) >= WHOLE_MIN)
    secrets = (*values, *(env[name] for name in server.env_files))
    return _Launch(argv=argv, env=env, cwd=server.cwd, secrets=secrets)


class _Told:
    """What a log may show of a server's own lines."""

    def __init__(self, server: StdioServer, secrets: tuple[str, ...]) -> None:
        self._scrubber = Scrubber(secrets) if server.log_stderr else None

    def text(self, line: bytes) -> str:
        """Return the line's text, or how long it is."""
        if self._scrubber is None:
            return f"{len(line)} bytes"
        self._scrubber.renew()
        # before it is cut: a value that the cut goes through would not be found
        whole = self._scrubber.text(line.decode("utf-8", "backslashreplace"))
        return whole[:STDERR_LINE_BYTES_MAX]


def _absolute(program: str, cwd: Path) -> str:
    """A program with a `/` in its name is looked for from the child's folder, as a shell would."""
    return str(cwd / program) if "/" in program else program


def _can_take(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    state = sum(events for _, events in poll.poll(0))
    if state & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
        raise BrokenPipeError
    return bool(state & select.POLLOUT)


async def _receive(fd: int) -> bytes:
    while True:
        try:
            return os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            await anyio.wait_readable(fd)
        except OSError:
            return b""


async def _discard(fd: int) -> None:
    while await _receive(fd):
        await anyio.lowlevel.checkpoint()


def _pipes() -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Return three pipes, or raise OSError and leave none open: a process may run out of descriptors."""
    made: list[tuple[int, int]] = []
    try:
        for _ in range(3):
            made.append(os.pipe2(os.O_CLOEXEC))  # noqa: PERF401 - those before the one that fails count
    except OSError:
        for pipe in made:
            _close_all(pipe)
        raise
    first, second, third = made
    return first, second, third


def _close_all(fds: tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)
