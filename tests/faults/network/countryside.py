"""A network namespace for a daemon, joined by a virtual cable to the one of the tests. Part of `network`.

The worker first leaves the network of the machine (`leave`), so that neither its addresses nor its firewall
matter, nor change. Needs root, `ip` and `iptables` (Debian: iproute2, iptables), and `tbf` of the kernel for
slow cables.
"""

import ctypes
import os
import subprocess
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

from tests.faults.lane import program, root

CLONE_NEWNET: Final = 0x4000_0000
RATE: Final = ("rate", "64kbit", "burst", "2kb", "latency", "2s")
SOME: Final = ("-m", "statistic", "--mode", "random", "--probability")
PROBE: Final = (
    "unshare", "--net", "sh", "-ec",
    (f"ip link add near0 type veth peer name far0; iptables -w -A INPUT {' '.join(SOME)} 0.5 -j DROP; "
     f"tc qdisc add dev near0 root tbf {' '.join(RATE)}"),
)  # fmt: skip
"""Everything that a countryside is made of, in a network that is gone a moment later."""


def lacking() -> list[str]:
    """Return what this machine has not that is needed here."""
    found = [word for need in (root, program("ip"), program("iptables"), program("tc")) if (word := need())]
    if not found:
        tried = subprocess.run(PROBE, capture_output=True, text=True, check=False)
        if tried.returncode:
            found.append(f"the kernel cannot do it: {tried.stderr.strip()[-200:]}")
    return found


def leave() -> None:
    """Give this process, and what it starts from now on, a network of its own, with a loopback."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    _run("ip", "link", "set", "lo", "up")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cottage:
    """A namespace with a daemon in it, far from the plane. Made by `cottage`."""

    name: str
    plane: str
    """The address at which the plane is reached."""

    @property
    def wrapper(self) -> Sequence[str]:
        """The command line under which a program runs there."""
        return ("ip", "netns", "exec", self.name)

    @asynccontextmanager
    async def way(self, port: int) -> AsyncGenerator[int]:
        """Yield the port at which this one of the plane's side is reached: all lies in the network."""
        yield port

    def drop(self, *chains: str, share: float = 1.0) -> None:
        """Drop packets: OUTPUT, those of the daemon; INPUT, those to it."""
        some = () if share == 1.0 else (*SOME, str(share))
        for chain in chains:
            self._inside("iptables", "-w", "-A", chain, *some, "-j", "DROP")

    def slow_down(self) -> None:
        """Let either side send so many bytes a second, and no more."""
        self._inside("tc", "qdisc", "add", "dev", "home", "root", "tbf", *RATE)
        _run("tc", "qdisc", "add", "dev", self.name, "root", "tbf", *RATE)

    def heal(self) -> None:
        """Drop nothing more, and be fast."""
        self._inside("iptables", "-w", "-F")
        for place in (
            (*self.wrapper, "tc", "qdisc", "del", "dev", "home"),
            ("tc", "qdisc", "del", "dev", self.name),
        ):
            subprocess.run([*place, "root"], capture_output=True, check=False)

    def dropped(self) -> int:
        """Return how many packets were dropped since the last healing."""
        said = self._inside("iptables", "-w", "-L", "-v", "-n", "-x")
        return sum(int(line.split()[0]) for line in said.splitlines() if " DROP " in line)

    def _inside(self, *command: str) -> str:
        return _run(*self.wrapper, *command)


@contextmanager
def cottage(number: int) -> Generator[Cottage]:
    """Build one; `number` (up to 16,000) is free in this process."""
    name = f"eff{os.getpid() % 100_000}-{number}"
    high, low = divmod(4 * number, 256)
    made = Cottage(name=name, plane=f"10.213.{high}.{low + 1}")
    _run("ip", "netns", "add", name)
    try:
        _run("ip", "link", "add", name, "type", "veth", "peer", "name", "home", "netns", name)
        _run("ip", "address", "add", f"{made.plane}/30", "dev", name)
        _run("ip", "link", "set", name, "up")
        made._inside("ip", "address", "add", f"10.213.{high}.{low + 2}/30", "dev", "home")
        for device in ("lo", "home"):
            made._inside("ip", "link", "set", device, "up")
        yield made
    finally:
        # the cable goes with it
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.returncode, f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
