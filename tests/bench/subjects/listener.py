"""Somebody who listens: follows the events of a daemon, and asks for its metrics, in a process of its own.

Run as `python -I -S listener.py SOCKET`. It throws away what it hears, as cheaply as it can: what it costs is
to be the daemon's share.
"""

import socket
import sys
import threading
import time

SCRAPE_S = 1.0
BYTES_MAX = 1_048_576


def ask(path: str, target: str) -> None:
    """Read the answer to one request to its end."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n".encode())
        assert connection.recv(BYTES_MAX).startswith(b"HTTP/1.1 200 "), target
        while connection.recv(BYTES_MAX):
            pass


def scrape(path: str) -> None:
    """Ask for the metrics, for ever."""
    while True:
        ask(path, "/metrics")
        time.sleep(SCRAPE_S)


if __name__ == "__main__":
    threading.Thread(target=scrape, args=(sys.argv[1],), daemon=True).start()
    ask(sys.argv[1], "/v1/events?follow=true")
