"""A model behind Anthropic's messages API.

Part of `supervisor.models`; imports `supervisor.prompt` and its siblings.
"""

from typing import Any, Final, cast

from supervisor.models.blocks import joined
from supervisor.models.model import ModelFailed
from supervisor.models.post import Endpoint, post, read_key
from supervisor.prompt import Question

BASE_URL: Final = "https://api.anthropic.com"
PATH: Final = "/v1/messages"
VERSION: Final = "2023-06-01"
TOKENS_FOR_PROSE: Final = 2_048
TOKENS_FOR_EACH: Final = 96
"""An operation's id takes about 30, its effect and basis the rest."""


class AnthropicChat:
    """Implements `Chat`. `endpoint.url` is that of the messages."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    @property
    def name(self) -> str:
        """The model's name, as the API knows it."""
        return self._endpoint.model_name

    async def ask(self, question: Question) -> str:
        """Return the text blocks of the answer, joined. Raises `ModelFailed`."""
        key = await read_key(self._endpoint)
        headers = {"anthropic-version": VERSION, **({} if key is None else {"x-api-key": key})}
        answer: Any = await post(
            self._endpoint,
            headers,
            {
                "model": self._endpoint.model_name,
                "max_tokens": TOKENS_FOR_PROSE + TOKENS_FOR_EACH * question.operations,
                "system": question.system,
                "messages": [{"role": turn.role, "content": turn.text} for turn in question.turns],
            },
        )
        blocks = answer.get("content")
        if not isinstance(blocks, list):
            raise ModelFailed(self.name, "answered what is no message")
        return joined(cast("list[object]", blocks))
