"""Tells the service manager how the daemon is: the datagrams of sd_notify(3).

Part of `driver`; imports only the standard library. Without `NOTIFY_SOCKET` in the environment every call
does nothing, so that the daemon runs the same in a terminal or as a plain child.
"""

import contextlib
import os
import socket


def notify(message: str) -> None:
    """Send `message` (such as `READY=1`) to the service manager. Never raises."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.settimeout(0)
        channel.sendto(message.encode(), address)
