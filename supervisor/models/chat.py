"""A triage model made of whoever answers in text: asked once, and once more where the answer was none.

Part of `supervisor.models`; imports `supervisor.{prompt,verdict,wall}`.
"""

from supervisor.models.model import Chat, Judged
from supervisor.prompt import again, first
from supervisor.verdict import Malformed, parse
from supervisor.wall import Wall


class ChatModel:
    """Implements `Model`."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat

    @property
    def name(self) -> str:
        """The name of whoever is asked."""
        return self._chat.name

    @property
    def is_paid(self) -> bool:
        """It may be."""
        return True

    async def judge(self, wall: Wall) -> Judged:
        """Ask about the wall, with one corrective question at most.

        Raises `ModelFailed` where nobody answered, and `Malformed` where the second answer was none either.
        """
        question = first(wall)
        text = await self._chat.ask(question)
        try:
            return Judged(parse(text), "answered")
        except Malformed as malformed:
            corrected = again(question, text, malformed.problem)
        return Judged(parse(await self._chat.ask(corrected)), "repaired")
