"""Files of variables, one `NAME=VALUE` on each line, as clients read them beside their configuration.

Part of `driver.importing`, pure: imports nothing of ours.
"""

import re
from typing import Final

_LINE: Final = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*")
_QUOTES: Final = ("'", '"')


def read_variables(text: str) -> dict[str, str]:
    """Return the variables; lines that set none (comments, blanks) are passed over."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if match := _LINE.fullmatch(line):
            found[match[1]] = _value(match[2])
    return found


def _value(text: str) -> str:
    """Without the quotes around it, or else without a comment behind it."""
    if len(text) > 1 and text[0] in _QUOTES and text[-1] == text[0]:
        return text[1:-1]
    return re.split(r"\s#", text, maxsplit=1)[0].rstrip()
