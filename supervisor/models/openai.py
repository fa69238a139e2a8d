"""A model behind an API that speaks OpenAI's chat completions: theirs, or anybody's who is compatible.

Part of `supervisor.models`; imports `supervisor.prompt` and its siblings.
"""

from typing import Any, Final, cast

from store.records import JsonObject
from supervisor.models.blocks import joined
from supervisor.models.model import ModelFailed
from supervisor.models.post import Endpoint, post, read_key
from supervisor.prompt import Question

BASE_URL: Final = "https://api.openai.com/v1"
PATH: Final = "/chat/completions"


class OpenAiChat:
    """Implements `Chat`. `endpoint.url` is that of the completions."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    @property
    def name(self) -> str:
        """The model's name, as the API knows it."""
        return self._endpoint.model_name

    async def ask(self, question: Question) -> str:
        """Return the text of the first choice. Raises `ModelFailed`."""
        key = await read_key(self._endpoint)
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        turns: list[JsonObject] = [{"role": turn.role, "content": turn.text} for turn in question.turns]
        answer: Any = await post(
            self._endpoint,
            headers,
            {
                "model": self._endpoint.model_name,
                "messages": [{"role": "system", "content": question.system}, *turns],
                "stream": False,
            },
        )
        try:
            content = answer["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            raise ModelFailed(self.name, "answered what is no chat completion") from None
        if isinstance(content, list):
            return joined(cast("list[object]", content))
        # a refusal, or an answer that is all tool calls, has no content
        return content if isinstance(content, str) else ""
