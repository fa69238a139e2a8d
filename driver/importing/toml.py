"""Text that TOML reads as it was: strings, keys, comments.

Part of `driver.importing`, pure: imports `driver.config.errors`.
"""

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from driver.config.errors import printable, toml_name

LINE_CHARS: Final = 110


def string(text: str) -> str:
    """Return `text` as a basic string. It holds no half of a surrogate pair."""
    # JSON's escapes are TOML's; what JSON leaves, and TOML forbids, is the delete character
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def key(name: str) -> str:
    """Return `name` as a key, quoted where it must be."""
    return toml_name((name,))


def array(items: Iterable[str]) -> str:
    """Return an array of strings on one line."""
    return f"[{', '.join(string(item) for item in items)}]"


def table(members: Mapping[str, str]) -> str:
    """Return an inline table of strings."""
    return f"{{ {', '.join(f'{key(name)} = {string(value)}' for name, value in members.items())} }}"


def comment(text: str) -> str:
    """Return `text` as one line that TOML passes over, whatever it holds."""
    return f"# {printable(text)}".rstrip()


def sentences(text: str) -> Iterator[str]:
    """Yield `text` as comments of no more than `LINE_CHARS`, unless a word is longer."""
    width = LINE_CHARS - len("# ")
    lines = textwrap.wrap(printable(text), width, break_long_words=False, break_on_hyphens=False)
    yield from (f"# {line}" for line in lines)
