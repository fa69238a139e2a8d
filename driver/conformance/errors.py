"""What can go wrong with the battery itself, as opposed to its subject.

Part of `driver.conformance`.

    ConformanceError
     ├── AdapterSilent    it gave no answer in time
     ├── AdapterEnded     its process ended, and nobody had killed it
     ├── AdapterGarbled   its answer was none
     └── SelfCheckFailed  the battery found a bad client good, or a good one bad
"""

from collections.abc import Collection


class ConformanceError(Exception):
    """The battery could not be carried out."""


class AdapterSilent(ConformanceError):
    """The adapter gave no answer in time."""

    def __init__(self, verb: str, seconds: float, tail: str) -> None:
        self.verb = verb
        self.seconds = seconds
        super().__init__(f"the adapter did not answer '{verb}' within {seconds:g} s{_said(tail)}")


class AdapterEnded(ConformanceError):
    """The adapter's process ended by itself."""

    def __init__(self, verb: str, code: int | None, tail: str) -> None:
        self.verb = verb
        self.code = code
        ended = "closed its output" if code is None else f"ended with exit code {code}"
        super().__init__(f"the adapter {ended} when it was asked '{verb}'{_said(tail)}")


class AdapterGarbled(ConformanceError):
    """The adapter answered with what is no answer."""

    def __init__(self, verb: str, line: str, problem: str) -> None:
        self.verb = verb
        super().__init__(f"the adapter answered '{verb}' with {line[:200]!r}: {problem}")


class SelfCheckFailed(ConformanceError):
    """The battery does not tell a good client from a bad one on this machine."""

    def __init__(self, wrong: Collection[str]) -> None:
        self.wrong = wrong
        super().__init__(f"the battery does not judge its own clients rightly: {'; '.join(wrong)}")


def _said(tail: str) -> str:
    return f"; its standard error ends with:\n{tail}" if tail else ""
