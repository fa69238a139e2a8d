"""The paths that a call's contract withholds, as a column keeps them: behind a checksum of their own.

Part of `store`, pure: imports its chain. No event repeats these paths, and one list is as good as another:
only the text itself can tell that it was damaged. Journals of earlier versions have lists without a checksum.
"""

import json
from collections.abc import Sequence
from typing import Final, cast

from store import chain

_CHECK: Final = 16
"""Hex digits of the checksum: a random change goes unseen once in 2^64."""
_BARE: Final = "["
"""How a list without a checksum begins; no checksum does, nor one with a bit flipped."""


def as_text(paths: Sequence[str]) -> str | None:
    """Return what a row keeps of `paths`; None where there are none."""
    if not paths:
        return None
    text = json.dumps(paths)
    return _check(text) + text


def as_paths(text: str | None) -> tuple[str, ...]:
    """Return the paths that a row keeps. Raises ValueError where the text was damaged."""
    if text is None:
        return ()
    bare = text if text.startswith(_BARE) else text[_CHECK:]
    if bare is not text and _check(bare) != text[:_CHECK]:
        raise ValueError("the withheld paths do not have their checksum")  # noqa: TRY003 - a damaged row
    paths: object = json.loads(bare)
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in cast("list[object]", paths)):
        raise ValueError("the withheld paths are no list of texts")  # noqa: TRY003 - a damaged row
    return tuple(cast("list[str]", paths))


def _check(text: str) -> str:
    return chain.digest(text.encode())[:_CHECK]
