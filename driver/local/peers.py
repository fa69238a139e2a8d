"""Who is at the other end of a Unix socket: the kernel's word, which no request can forge.

Part of `driver.local`; imports only the standard library, anyio and starlette's types. The uid becomes the
actor of every verdict and decision; the user's name is a label beside it, never instead of it.
"""

import pwd
import socket
import struct
from dataclasses import dataclass
from typing import Final

from anyio import to_thread
from starlette.requests import Request

PEER_STATE: Final = "peer"
"""The key of the ASGI scope's state that holds the `Peer`."""

_UCRED: Final = struct.Struct("3i")
"""`struct ucred` of unix(7): pid, uid, gid, as of the peer's `connect`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The process that connected."""

    pid: int
    uid: int
    gid: int

    @property
    def actor(self) -> str:
        """The peer as the journal names it: `operator:1000`."""
        return f"operator:{self.uid}"


def credentials(connection: socket.socket) -> Peer:
    """Return the peer of a connected Unix socket. Raises OSError for anything else."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, gid = _UCRED.unpack(raw)
    return Peer(pid=pid, uid=uid, gid=gid)


def peer_of(request: Request) -> Peer:
    """Return the peer of the connection that `request` came over."""
    peer = request.scope["state"][PEER_STATE]
    assert isinstance(peer, Peer)
    return peer


async def label_of(peer: Peer) -> str | None:
    """Return the peer's user name, or None where there is none. Asks the user database in a thread."""
    return await to_thread.run_sync(_user_name, peer.uid)


def _user_name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
