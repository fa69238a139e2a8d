"""The program as a person types it: real commands, and a real daemon that runs beside them."""

import os
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

EFFECTD: Final = Path(sys.executable).with_name("effectd")
PATIENCE_S: Final = 60


def run(*words: "str | Path") -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run([EFFECTD, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@contextmanager
def daemon(config: Path, log: Path, variables: Mapping[str, str] = os.environ) -> Generator[None]:
    """Run the daemon with its output in `log`; the body begins when it is ready."""
    notify = log.with_name("notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel, log.open("wb") as output:
        channel.bind(str(notify))
        channel.settimeout(PATIENCE_S)
        environment = {**variables, "NOTIFY_SOCKET": str(notify)}
        words = [str(EFFECTD), "run", "--config", str(config)]
        with subprocess.Popen(words, env=environment, stdout=output, stderr=output) as process:
            try:
                while b"READY=1" not in channel.recv(4_096):
                    pass
                yield
            finally:
                process.terminate()
                process.wait(PATIENCE_S)
                notify.unlink()
