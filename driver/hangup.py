"""SIGHUP, the word of a terminal that closes: to whom it means that a process is to end.

Part of `driver`; imports only the standard library.
"""

import signal


def hangup() -> tuple[signal.Signals, ...]:
    """Return SIGHUP, to listen for with what else says to end; nothing where it is ignored.

    So it is under `nohup`, which listening would undo.
    """
    return () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
