"""Forks shims: an interpreter that is always warm, and ends with its daemon.

Part of `driver.providers.command.shim`; imports its `files`, `keeper`, `kernel` and `words`, and the standard
library. Started by `driver.providers.command.spawn`, as `main(SOCKET)`.
"""

import gc
import os
import signal
import socket
import sys
import traceback
from array import array
from contextlib import suppress
from typing import Final, NoReturn

from driver.providers.command.shim import kernel
from driver.providers.command.shim.files import FinalRecord
from driver.providers.command.shim.keeper import Keeper
from driver.providers.command.shim.words import HELLO, MESSAGE_BYTES_MAX, READY, Descriptors, Plan

EXIT_BROKEN: Final = 70
"""Of a shim that failed: EX_SOFTWARE of sysexits.h. Its log says how, and there is no record of an end."""


def main(descriptor: int) -> None:
    """Fork a shim for each message on the socket; returns when the daemon is gone."""
    orders = socket.socket(fileno=descriptor)
    orders.set_inheritable(False)
    kernel.hide()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries shims: nobody here waits for them
    gc.disable()
    gc.freeze()  # what a shim does not touch, it shares
    with suppress(BrokenPipeError):  # the daemon is gone: there is nothing to receive either
        orders.send(HELLO)
    while handed := _receive(orders):
        with suppress(OSError):  # no room for a process: the link ends, which says that there is no shim
            if not os.fork():
                orders.close()
                _become_shim(handed)
        for received in handed:
            if received is not None:
                os.close(received)


def _receive(orders: socket.socket) -> Descriptors | None:
    """Return what the next shim is handed; None at the end."""
    numbers = array("i")
    size = len(Descriptors._fields) * numbers.itemsize
    try:
        message, ancillary, _, _ = orders.recvmsg(
            MESSAGE_BYTES_MAX, socket.CMSG_SPACE(size), socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionResetError:  # the daemon was killed before it had read the greeting
        return None
    for _, _, data in ancillary:
        numbers.frombytes(data)
    return Descriptors(*numbers) if message else None


def _become_shim(handed: Descriptors) -> NoReturn:
    """Keep a program in this process, and exit when its record is durable, or it was not executed."""
    code = EXIT_BROKEN
    try:
        os.setsid()
        os.dup2(handed.log, sys.stdout.fileno())
        os.dup2(handed.log, sys.stderr.fileno())
        shim(handed)
        code = os.EX_OK
    except BaseException:  # noqa: BLE001 it ends here, and its log is all that can be told
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def shim(handed: Descriptors) -> None:
    """Keep the program of the plan; returns when its record is durable, or when it was not executed."""
    plan = Plan.read(handed.plan)
    os.close(handed.plan)
    kernel.reap_orphans()
    final = FinalRecord(handed.folder)
    keeper = Keeper(plan, handed)
    os.write(handed.link, READY + str(os.getpid()).encode())
    seconds = os.read(handed.link, MESSAGE_BYTES_MAX)
    if not seconds:
        return
    try:
        keeper.start(float(seconds))
        keeper.keep()
    finally:
        keeper.end_all()
    final.commit(keeper.end_record())
