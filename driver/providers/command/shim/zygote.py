"""Forks shims and leashes: an interpreter that is always warm, and ends with its daemon.

Part of `driver.providers.command.shim`; imports all of it, and the standard library. Started by
`driver.providers.command.zygote`, as `main(SOCKET)`.
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
from driver.providers.command.shim.leash import leash
from driver.providers.command.shim.words import (
    HELLO,
    LEASH,
    MESSAGE_BYTES_MAX,
    READY,
    Descriptors,
    Leashed,
    Plan,
)

EXIT_BROKEN: Final = 70
"""Of a shim that failed: EX_SOFTWARE of sysexits.h. Its log says how, and there is no record of an end."""
DESCRIPTORS_MAX: Final = max(len(Descriptors._fields), len(Leashed._fields))


def main(descriptor: int) -> None:
    """Fork a shim, or a leash, for each message on the socket; returns when the daemon is gone."""
    orders = socket.socket(fileno=descriptor)
    orders.set_inheritable(False)
    kernel.hide()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries shims: nobody here waits for them
    gc.disable()
    gc.freeze()  # what a shim does not touch, it shares
    with suppress(BrokenPipeError):  # the daemon is gone: there is nothing to receive either
        orders.send(HELLO)
    while received := _receive(orders):
        order, numbers = received
        with suppress(OSError):  # no room for a process: the link ends, which says that there is no shim
            if not os.fork():
                orders.close()
                _become(order, numbers)
        for number in numbers:
            os.close(number)


def _receive(orders: socket.socket) -> tuple[bytes, list[int]] | None:
    """Return what is asked for next, and the descriptors that it is handed; None at the end."""
    numbers = array("i")
    size = DESCRIPTORS_MAX * numbers.itemsize
    try:
        message, ancillary, _, _ = orders.recvmsg(
            MESSAGE_BYTES_MAX, socket.CMSG_SPACE(size), socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionResetError:  # the daemon was killed before it had read the greeting
        return None
    for _, _, data in ancillary:
        numbers.frombytes(data)
    return (message, list(numbers)) if message else None


def _become(order: bytes, numbers: list[int]) -> NoReturn:
    """Keep a program in this process, and exit when nothing is left to do."""
    code = EXIT_BROKEN
    try:
        os.setsid()
        if order == LEASH:
            leash(Leashed(*numbers))
        else:
            _shim_with_log(Descriptors(*numbers))
        code = os.EX_OK
    except BaseException:  # noqa: BLE001 it ends here, and this is all that can be told
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _shim_with_log(handed: Descriptors) -> None:
    os.dup2(handed.log, sys.stdout.fileno())
    os.dup2(handed.log, sys.stderr.fileno())
    shim(handed)


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
