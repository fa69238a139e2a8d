"""What can keep the demo from being played.

Part of `driver.demo`; imports nothing of ours.

    DemoError
     ├── MissingProgram   a program that the demo acts with is not installed
     ├── ProcessEnded     a process of the demo ended when it should not have
     ├── TooSlow          something that should happen did not, within a generous time
     └── GitFailed        git did not do what was asked of it
"""

from collections.abc import Sequence


class DemoError(Exception):
    """The demo could not be played to its end. Its text says what to do."""


class MissingProgram(DemoError):
    """A program that the demo acts with is not installed."""

    def __init__(self, program: str, install: str) -> None:
        self.program = program
        super().__init__(f"the demo needs {program}, which is not installed: {install}")


class ProcessEnded(DemoError):
    """A process of the demo ended when it should not have; `output` is the end of what it wrote."""

    def __init__(self, name: str, code: int, output: str) -> None:
        self.name = name
        self.code = code
        super().__init__(
            f"{name} ended with exit code {code}, and the story needs it. It wrote last:\n{output.rstrip()}"
        )


class TooSlow(DemoError):
    """Something that should happen did not, within a generous time."""

    def __init__(self, name: str, what: str, waited_s: float, output: str = "") -> None:
        self.name = name
        self.what = what
        self.waited_s = waited_s
        told = f" It wrote last:\n{output.rstrip()}" if output.strip() else ""
        super().__init__(
            f"waited {waited_s:g} s in vain until {name} {what}; on a very busy machine, run it again.{told}"
        )


class GitFailed(DemoError):
    """Git did not do what was asked of it."""

    def __init__(self, words: Sequence[str], code: int, complaint: str) -> None:
        self.words = tuple(words)
        self.code = code
        super().__init__(f"'git {' '.join(words)}' failed with {code}: {complaint.strip()}")
