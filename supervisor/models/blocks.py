"""The text of an answer that comes in blocks, as both APIs may give it.

Part of `supervisor.models`; imports nothing of ours.
"""

from collections.abc import Iterator
from typing import cast


def joined(blocks: list[object]) -> str:
    """Return the text blocks, joined; what a model thought, and what it wanted to call, is no answer."""
    return "".join(_texts(blocks))


def _texts(blocks: list[object]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, dict):
            members = cast("dict[str, object]", block)
            text = members.get("text")
            if members.get("type") == "text" and isinstance(text, str):
                yield text
