"""The protocol of triage models, and how they fail.

Part of `supervisor.models`; imports `supervisor.{prompt,verdict,wall}`.

    ModelFailed      nobody answered: worth another attempt, later
    verdict.Malformed  somebody answered, twice, and not what was asked
"""

from dataclasses import dataclass
from typing import Final, Literal, Protocol

from supervisor.prompt import Question
from supervisor.verdict import Answer
from supervisor.wall import Wall

ANSWER_BYTES_MAX: Final = 1_048_576
"""A wall's verdicts take about 20 kB; what is far longer is no answer."""


class ModelFailed(Exception):
    """No answer came. `detail` is in our own words: what peers say, and what was sent, stays out of it.

    `retry_after_s` is when the peer wants to be asked again, where it said so.
    """

    def __init__(self, model: str, detail: str, *, retry_after_s: float | None = None) -> None:
        self.model = model
        self.detail = detail
        self.retry_after_s = retry_after_s
        super().__init__(
            f"the triage model {model} {detail}; it is asked again later, and in the end the rules decide"
        )


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer, and whether it had to be asked for twice."""

    answer: Answer
    status: Literal["answered", "repaired"]


class Model(Protocol):
    """Whoever can judge a wall."""

    @property
    def name(self) -> str:
        """What stands in the verdict."""
        ...

    @property
    def is_paid(self) -> bool:
        """Whether asking costs anything: then each attempt is recorded before it is made."""
        ...

    async def judge(self, wall: Wall) -> Judged:
        """Return what the model says about the wall.

        Raises `ModelFailed` and `Malformed`, within a bounded time. Cancellation ends the asking.
        """
        ...


class Chat(Protocol):
    """Whoever answers a question in text."""

    @property
    def name(self) -> str:
        """The model's name."""
        ...

    async def ask(self, question: Question) -> str:
        """Return the answer, of at most `ANSWER_BYTES_MAX` bytes. Raises `ModelFailed`."""
        ...
