"""What can be wrong with a call of an HTTP tool, before anything is sent.

Part of `driver.providers.http`; imports `driver.core.attempts`.

    Refused                  provably no byte of the request left, and none will
     └── InvalidArguments    they do not suit the declaration

What can be wrong with an answer stands in `answers`: `UnusableBody` with `TooLarge` and `NotDecompressed`.
"""

from driver.core.attempts import NotSent, NotSentReason


class Refused(Exception):
    """A call that is not made."""

    def __init__(self, reason: NotSentReason, message: str) -> None:
        self.report = NotSent(reason=reason, message=message)
        super().__init__(message)


class InvalidArguments(Refused):
    """The arguments do not suit `part` of the declaration. `detail` never quotes an argument."""

    def __init__(self, part: str, detail: str) -> None:
        self.part = part
        super().__init__("invalid_arguments", f"{part}: {detail}")
