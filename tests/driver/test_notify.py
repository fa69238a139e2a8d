"""The service manager's datagrams reach a real socket, and their absence hurts nobody."""

import socket
from pathlib import Path

import pytest

from driver.notify import notify


def test_the_message_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """READY=1 is one datagram on NOTIFY_SOCKET."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify("READY=1")
        assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "/nobody/listens/here", "relative", "@nobody-listens-here"])
def test_nobody_listening_is_no_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon in a terminal, or whose manager is gone, goes on."""
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")
