"""Whoever decides about a process's calls copes with one that is gone."""

import os
import socket

import pytest

from tests.faults import notifier
from tests.faults.notifier import Supervisor

pytestmark = pytest.mark.skipif(
    notifier.lacking() is not None, reason="the kernel cannot report system calls"
)


def test_a_process_that_has_ended_before_anybody_looked_asks_nothing() -> None:
    """It made no call that is reported, and has no memory that could be read any more."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        notifier.submit(theirs, "link")
        os._exit(0)
    theirs.close()
    _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
    ours.close()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    supervisor = Supervisor(pid, listener, "/", lambda _: 0)
    supervisor.serve()
    assert supervisor.calls == []
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
