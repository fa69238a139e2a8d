"""What can be wrong with a call of a program, before anything runs.

Part of `driver.providers.command`; imports `driver.core.attempts`.

    Refused           provably nothing was executed, and nothing will be
    AttemptExists     this very attempt was begun before
"""

from driver.core.attempts import NotSent, NotSentReason


class Refused(Exception):
    """A call that is not made."""

    def __init__(self, reason: NotSentReason, message: str) -> None:
        self.report = NotSent(reason=reason, message=message)
        super().__init__(message)


class AttemptExists(Exception):
    """The attempt has a folder already: whatever it did, it must not do it twice."""

    def __init__(self) -> None:
        super().__init__("this attempt was begun before, by another life of the daemon")
