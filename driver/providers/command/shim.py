"""The shim: keeps one program, and outlives the daemon that asked for it.

Part of `driver.providers.command`, and a program of its own: `spawn` runs it in an interpreter without
`site`, and it imports nothing but what is compiled into the interpreter. Whatever else it imported, every
command would wait for; that is why there are no dataclasses, no enums, no `json` and not even `os` here.

Theory of operation
-------------------
The daemon hands down six descriptors: the plan (what to run), the link (a socket, until the program runs),
the control (a FIFO in the attempt's folder), the folder, the working folder, and the program's stdin.

1. It makes itself the reaper of all its descendants, opens the files for output, sets space aside for the
   record, and says `ready`. If the link ends now, the daemon changed its mind or died: nothing was executed,
   and nothing will be.
2. The daemon answers with the seconds that the program may take. A child is forked that waits; the record
   `started` is written, by rename; only then is the child released, and executes the program. So where there
   is no `started`, no shim, and was no reboot, the program never ran.
3. It waits for output, for the program's end, for the deadline, and for a byte from the control, which means
   cancel. Output beyond its limit is read and thrown away: the program never blocks on it.
4. Whatever ended the program, its descendants are ended too. They cannot get away by daemonising: an orphan
   becomes the shim's child. When the kernel says that there is no child left, there is no descendant either.
5. The record `ended` is fsynced, renamed, its folder fsynced, and the shim exits. With that the control loses
   its only reader, and that is what a daemon, this one or the next, waits for.

Only SIGKILL makes it exit early; then the kernel kills the program too.
"""

# ruff: noqa: SIM105 `contextlib` would have to be imported

import marshal
import posix
import select
import sys
import time
from _ctypes import call_cdeclfunction, dlopen, dlsym  # a third of what `ctypes` costs
from posix import _exit  # pyright: ignore[reportPrivateUsage] its public name is in `os`

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
else:
    import _signal as signal  # without the enums, which cost more than all the other imports

FORMAT = 1
"""Of the records, which the daemon that reads them may be a later version than this."""
READY = b"ready"
STARTED = b"started"

TERM_S = 2.0
"""From SIGTERM until SIGKILL, at a deadline or a cancel."""
LINGER_S = 0.5
"""How long what the program started may outlive it: the end of a pipeline, a `tee` with its last line."""
LINGER_TERM_S = 0.5
"""From SIGTERM until SIGKILL for what lingers on."""
KILL_S = 2.0
"""From SIGKILL until it is given up: then it hangs in the kernel, or belongs to another user."""
CHUNK_BYTES = 65_536
"""What is read at once: the capacity of a pipe."""
DRAIN_BYTES_MAX = 16 * CHUNK_BYTES
"""Read after the end, when only a stranger who was handed the pipe could still write."""
WAIT_S_MAX = 86_400.0
"""One wait: what `poll` takes is a C integer of milliseconds."""
RECORD_BYTES = 4_096
"""Set aside before anything runs, so that a full disk does not lose the record."""

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
_PRCTL = dlsym(dlopen("", 0), "prctl")  # "": the interpreter itself, and the libc that it has loaded

RUNNING, LINGERING, TERMINATING, KILLING, OVER = range(5)


def main() -> None:
    """Keep the program of the plan; returns when its record is durable, or when nothing was executed."""
    posix.close(int(sys.argv[0].rpartition("/")[2]))  # this code
    descriptors = [int(word) for word in sys.argv[1:7]]
    for descriptor in descriptors:
        posix.set_inheritable(descriptor, False)  # noqa: FBT003 it takes no keywords
    plan_fd, link, control, folder, cwd, stdin = descriptors
    plan = Plan(posix.pread(plan_fd, posix.fstat(plan_fd).st_size, 0))
    posix.close(plan_fd)
    _outlive()
    record = _reserve(folder)
    keeper = Keeper(plan, link, control, folder)
    posix.write(link, READY)
    seconds = posix.read(link, 64)
    if not seconds:
        return
    try:
        keeper.start(float(seconds), cwd, stdin)
        keeper.keep()
    finally:
        keeper.end_all()
    _commit(record, keeper.record(), folder)


class Plan:
    """What to run, as the daemon wrote it down."""

    def __init__(self, data: bytes) -> None:
        self.operation_id: str
        self.attempt: int
        self.program: bytes
        self.argv: list[bytes]
        self.env: dict[bytes, bytes]
        self.output_bytes_max: int
        self.ok_exit_codes: list[int]
        self.__dict__ = marshal.loads(data)  # noqa: S302 the daemon wrote it, with this very interpreter


class Stream:
    """One output of the program: a pipe that is always read, and a file that takes no more than its limit."""

    def __init__(self, folder: int, name: str, bytes_max: int) -> None:
        self.read_end, self.write_end = posix.pipe()
        posix.set_blocking(self.read_end, False)
        self.file = _create(folder, name)
        self.kept = 0
        self.room = bytes_max
        self.truncated = False

    def pump(self) -> int:
        """Take what is there, up to one chunk, and return its size: 0 at the end."""
        chunk = posix.read(self.read_end, CHUNK_BYTES)
        if len(chunk) > self.room:
            self.truncated = True
        self._keep(chunk[: self.room])
        return len(chunk)

    def drain(self) -> None:
        """Take what is left, and make what was kept durable."""
        left = DRAIN_BYTES_MAX
        try:
            while left > 0 and (taken := self.pump()):
                left -= taken
        except BlockingIOError:
            pass  # a stranger holds the other end
        if self.kept:
            posix.fdatasync(self.file)

    def _keep(self, data: bytes) -> None:
        try:
            while data:
                written = posix.write(self.file, data)
                self.kept += written
                self.room -= written
                data = data[written:]
        except OSError:  # the disk is full: what was kept so far is what there is
            self.truncated = True
            self.room = 0


class Keeper:
    """The program, from its start until nothing of it is left."""

    def __init__(self, plan: Plan, link: int, control: int, folder: int) -> None:
        self.plan = plan
        self.link = link
        self.control = control
        self.folder = folder
        self.stdout = Stream(folder, "stdout", plan.output_bytes_max)
        self.stderr = Stream(folder, "stderr", plan.output_bytes_max)
        self.wake, wake_end = posix.pipe()
        for descriptor in (self.wake, wake_end, control):
            posix.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _note)
        self.poll = select.poll()
        self.waiters: dict[int, Callable[[], int]] = {}
        self._wait_for(self.wake, self._on_signal)
        self.failure = -1
        self.never_executed: str | None = None
        self.child = 0
        self.status: int | None = None
        self.cause: str | None = None
        self.stage = RUNNING
        self.until = 0.0
        self.began = self.ended = 0.0
        self.ended_by_us = self.left = 0

    # ------------------------------------------------------------ the start

    def start(self, seconds: float, cwd: int, stdin: int) -> None:
        """Fork a child, write `started`, and only then let the child execute the program."""
        self.began = time.monotonic()
        self.until = self.began + seconds
        waiting, release = posix.pipe()
        self.failure, failure_end = posix.pipe()
        posix.set_blocking(self.failure, False)
        self.child = posix.fork()
        if not self.child:
            posix.close(release)
            posix.close(self.control)
            self._execute(waiting, failure_end, cwd, stdin)
        for descriptor in (waiting, failure_end, self.stdout.write_end, self.stderr.write_end, cwd, stdin):
            posix.close(descriptor)
        started = _create(self.folder, "started.new")
        posix.write(started, self._start_record())
        posix.close(started)
        posix.rename("started.new", "started", src_dir_fd=self.folder, dst_dir_fd=self.folder)
        posix.write(release, b".")
        posix.close(release)

    def _execute(self, waiting: int, failure: int, cwd: int, stdin: int) -> None:
        """Become the program, in the child. Never returns: what fails is told to the shim."""
        try:
            posix.setsid()
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if posix.read(waiting, 1):  # nothing comes from a shim that is dead
                for source, target in ((stdin, 0), (self.stdout.write_end, 1), (self.stderr.write_end, 2)):
                    posix.dup2(source, target)
                posix.fchdir(cwd)
                _default_signals()
                posix.execve(self.plan.program, self.plan.argv, self.plan.env)
        except BaseException as error:  # noqa: BLE001 what is not told here would look like a program that ran
            why = error.strerror if isinstance(error, OSError) else None
            posix.write(failure, (why or type(error).__name__).encode())
        finally:
            _exit(127)

    def _start_record(self) -> bytes:
        return _json(
            {
                "format": FORMAT,
                "pid": posix.getpid(),
                "pid_started": _start_ticks(posix.getpid()),
                "child": self.child,
                "child_started": _start_ticks(self.child),
                "deadline": self.until,
                "stdout_pipe": posix.fstat(self.stdout.read_end).st_ino,
                "stderr_pipe": posix.fstat(self.stderr.read_end).st_ino,
            }
        )

    # ------------------------------------------------------------ while it runs

    def keep(self) -> None:
        """Return when the program and all that it started have ended, or cannot be ended."""
        for stream in (self.stdout, self.stderr):
            self._wait_for(stream.read_end, stream.pump)
        self._wait_for(self.failure, self._on_executed)
        self._wait_for(self.control, self._on_cancel)
        self._wait_out()
        if self.failure in self.waiters:
            self._on_executed()  # all of that went faster than the first look

    def _wait_for(self, descriptor: int, waiter: "Callable[[], int]") -> None:
        self.waiters[descriptor] = waiter
        self.poll.register(descriptor, select.POLLIN)

    def _wait_out(self) -> None:
        while True:
            self._reap()
            self._advance(time.monotonic())
            if self.stage == OVER:
                return
            wait_s = min(max(self.until - time.monotonic(), 0.0), WAIT_S_MAX)
            for descriptor, _ in self.poll.poll(int(wait_s * 1000) + 1):
                if descriptor in self.waiters and not self.waiters[descriptor]():
                    del self.waiters[descriptor]
                    self.poll.unregister(descriptor)

    def _on_executed(self) -> int:
        """The child's end of this pipe was closed by the kernel at `execve`, or tells why there was none."""
        try:
            why = posix.read(self.failure, 256)
            if why:
                self.never_executed = why.decode("ascii", "replace")
            else:
                posix.write(self.link, STARTED)
        except OSError:
            pass  # the daemon is gone, and the next one reads the records; or the child hangs in the kernel
        posix.close(self.link)
        return 0

    def _on_cancel(self) -> int:
        asked = len(posix.read(self.control, 64))
        self._reap()
        if self.stage == RUNNING and self.status is None:
            now = time.monotonic()
            self._interrupt("cancelled", min(now + TERM_S, max(self.until, now)))
        return asked

    def _on_signal(self) -> int:
        return len(posix.read(self.wake, 4_096))

    def _reap(self) -> None:
        """Collect what has ended. A shim without children has nothing left to do."""
        while True:
            try:
                pid, status = posix.waitpid(-1, posix.WNOHANG)
            except ChildProcessError:
                self.stage = OVER
                return
            if not pid:
                return
            if pid == self.child:
                self.status = status
                self.ended = time.monotonic()

    def _advance(self, now: float) -> None:
        """Do what is due at `now`."""
        if self.stage == RUNNING and self.status is not None:
            self.stage, self.until = LINGERING, now + LINGER_S
        elif self.stage == KILLING and now < self.until:
            _signal_descendants(signal.SIGKILL)  # what was forked since the last look
        elif now < self.until or self.stage == OVER:
            pass
        elif self.stage == RUNNING:
            self._interrupt("deadline", now + TERM_S)
        elif self.stage == LINGERING:
            self.ended_by_us = _signal_descendants(signal.SIGTERM)
            self.stage, self.until = TERMINATING, now + LINGER_TERM_S
        elif self.stage == TERMINATING:
            _signal_descendants(signal.SIGKILL)
            self.stage, self.until = KILLING, now + KILL_S
        else:
            self.left = len(_descendants())
            self.stage = OVER

    def _interrupt(self, cause: str, until: float) -> None:
        """Ask a program to end that has not ended by itself: what it says from now on is no answer."""
        self.cause = cause
        _signal_descendants(signal.SIGTERM)
        self.stage, self.until = TERMINATING, until

    # ------------------------------------------------------------ the end

    def end_all(self) -> None:
        """Leave nothing behind, whatever went wrong here."""
        if self.stage != OVER:
            self.stage, self.until = KILLING, time.monotonic() + KILL_S
            _signal_descendants(signal.SIGKILL)
            self._wait_out()

    def record(self) -> bytes:
        """Return how it ended, when the output is durable."""
        self.stdout.drain()
        self.stderr.drain()
        code = None if self.status is None else posix.waitstatus_to_exitcode(self.status)
        return _json(
            {
                "format": FORMAT,
                "operation_id": self.plan.operation_id,
                "attempt": self.plan.attempt,
                "never_executed": self.never_executed,
                "cause": self.cause,
                "exit_code": code if code is not None and code >= 0 else None,
                "signal": -code if code is not None and code < 0 else None,
                "ok": code in self.plan.ok_exit_codes,
                "duration_ms": int(((self.ended or time.monotonic()) - self.began) * 1000),
                "stdout_bytes": self.stdout.kept,
                "stderr_bytes": self.stderr.kept,
                "stdout_truncated": self.stdout.truncated,
                "stderr_truncated": self.stderr.truncated,
                "processes_ended": self.ended_by_us,
                "processes_left": self.left,
            }
        )


def _outlive() -> None:
    """Adopt every orphan among the descendants, show its memory to nobody, and heed no polite signal."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    _prctl(PR_SET_DUMPABLE, 0)
    for name in ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2"):
        signal.signal(getattr(signal, f"SIG{name}"), _note)


def _note(_number: int, _frame: object) -> None:
    """Interrupt `poll`, by way of the wake-up descriptor."""


def _default_signals() -> None:
    """Undo what this interpreter, or the daemon, ignores: a program expects the defaults."""
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                pass  # libc keeps a few for itself
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _prctl(option: int, value: int) -> None:
    if call_cdeclfunction(_PRCTL, (option, value, 0, 0, 0)):
        sys.exit(f"the kernel refuses prctl option {option}")


def _descendants() -> list[int]:
    """Return every process below this one, by one look at /proc."""
    children: dict[int, list[int]] = {}
    for name in posix.listdir("/proc"):
        if name.isdigit():
            fields = _stat_fields(int(name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(name))
    found = list(children.get(posix.getpid(), ()))
    for pid in found:  # grows while it is walked
        found += children.get(pid, ())
    return found


def _signal_descendants(number: int) -> int:
    """Send `number` to every descendant, and return to how many."""
    reached = 0
    for pid in _descendants():
        try:
            posix.kill(pid, number)
            reached += 1
        except OSError:
            pass  # it has just ended, or belongs to another user: then it is counted as left
    return reached


def _stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat behind the name, the state first; none where it has ended."""
    try:
        descriptor = posix.open(f"/proc/{pid}/stat", posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return []
    try:
        return posix.read(descriptor, 1_024).rpartition(b")")[2].split()
    except OSError:
        return []
    finally:
        posix.close(descriptor)


def _start_ticks(pid: int) -> int:
    """Return when `pid` was started: with it, a number that is used again is told apart."""
    return int(_stat_fields(pid)[19])


def _create(folder: int, name: str) -> int:
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC
    return posix.open(name, flags, 0o600, dir_fd=folder)


def _reserve(folder: int) -> int:
    """Return the file that the record will be written to; it has its space already."""
    descriptor = _create(folder, "ended.new")
    posix.posix_fallocate(descriptor, 0, RECORD_BYTES)
    return descriptor


def _commit(descriptor: int, record: bytes, folder: int) -> None:
    """Make the record durable, and only then visible under its name."""
    posix.write(descriptor, record)
    posix.ftruncate(descriptor, len(record))
    posix.fsync(descriptor)
    posix.rename("ended.new", "ended", src_dir_fd=folder, dst_dir_fd=folder)
    posix.fsync(folder)


def _json(fields: dict[str, object]) -> bytes:
    """Return a record as JSON; its values are numbers, truths, plain texts and None."""
    return ("{" + ",".join(f'"{name}":{_text(value)}' for name, value in fields.items()) + "}").encode()


def _text(value: object) -> str:
    if isinstance(value, str):
        return '"' + "".join(c if c.isascii() and c.isalnum() else f"\\u{ord(c):04x}" for c in value) + '"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


if __name__ == "__main__":
    main()
