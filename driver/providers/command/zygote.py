"""The daemon's end of the zygote: started when it is needed, and asked for shims.

Part of `driver.providers.command`; imports its `errors` and what its `shim` says. Everything here blocks:
call it in a worker thread. It may be called from several at once.
"""

import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

import driver
from driver.providers.command.errors import Refused
from driver.providers.command.shim.words import HELLO, MESSAGE_BYTES_MAX

START_S: Final = 10.0
"""An interpreter takes some ten milliseconds; beyond this the machine is in no state to run commands."""
SEND_S: Final = 2.0
"""A zygote that takes nothing for this long is stopped or hangs."""
END_S: Final = 2.0
"""From the end of its socket until it is killed."""
_CODE: Final = (
    "import sys; sys.path.insert(0, sys.argv[2]); "
    "from driver.providers.command.shim.zygote import main; main(int(sys.argv[1]))"
)
_PACKAGES: Final = str(Path(driver.__file__).parents[1])
_ENVIRONMENT: Final[Mapping[str, str]] = {"LC_ALL": "C.UTF-8"}
"""Nothing of ours: it is what shims would have, and only programs are given more."""


class Zygote:
    """One zygote, and another where that has ended. Close it at the end."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None

    @property
    def warm(self) -> bool:
        """True where a shim can be had without a start first, as far as is known. Does not block."""
        return self._orders is not None

    def warm_up(self) -> None:
        """Start the zygote, unless it is there. Raises `Refused`."""
        with self._lock:
            if self._orders is None:
                self._start()

    def fork(self, order: bytes, descriptors: Sequence[int]) -> None:
        """Have a shim or a leash forked that is handed these descriptors. Raises `Refused`, and `OSError`."""
        with self._lock:
            try:
                if self._orders is not None:
                    socket.send_fds(self._orders, [order], descriptors)
                    return
            except OSError:
                self._end()  # it was killed meanwhile
            socket.send_fds(self._start(), [order], descriptors)

    def close(self) -> None:
        """End the zygote. Its shims and leashes go on."""
        with self._lock:
            self._end()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _CODE, str(theirs.fileno()), _PACKAGES],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=_ENVIRONMENT,
                    cwd="/",
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            ours.settimeout(START_S)
            self._orders = ours
            hello = ours.recv(MESSAGE_BYTES_MAX)
        except OSError as error:
            ours.close()
            self._end()
            raise Refused("spawn_failed", f"shims cannot be started: {error}") from error
        if hello != HELLO:
            self._end()
            raise Refused("spawn_failed", _OTHER_VERSION if hello else _DIED)
        ours.settimeout(SEND_S)
        return ours

    def _end(self) -> None:
        if self._orders is not None:
            self._orders.close()
            self._orders = None
        if self._process is None:
            return
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
        self._process = None


_OTHER_VERSION: Final = "shims cannot be started: effectd was upgraded while it runs; restart it"
_DIED: Final = "shims cannot be started: their zygote ended at once, and said why on stderr"
