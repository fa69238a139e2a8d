"""JSON as clients' configuration files have it: with comments, and commas behind the last member.

Part of `driver.importing`, pure: imports nothing of ours.
"""

import json
import re
from collections import Counter
from typing import Final

_SPACED: Final = re.compile(r'"(?:[^"\\\n]|\\.)*(?:"|$)|//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)', re.MULTILINE)
"""A string, or a comment. An open string ends with its line, an open comment with the text: one look each."""
_TRAILING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*(?:"|$)|,(?=\s*[}\]])', re.MULTILINE)


class NotJson(Exception):
    """The text is no JSON; `detail` says where and why, and quotes nothing."""

    def __init__(self, where: str, reason: str) -> None:
        self.detail = f"{where}: {reason}" if where else reason
        super().__init__(self.detail)


class Members(dict[str, object]):
    """An object; `twice` has the names of members that it has more than once."""

    twice: tuple[str, ...] = ()


def read_json(text: str) -> object:
    """Return the value that the text is, its objects as `Members`. Raises `NotJson`."""
    plain = _TRAILING.sub(_without_comma, _SPACED.sub(_without_comment, text))
    try:
        value: object = json.loads(plain, object_pairs_hook=_members)
    except json.JSONDecodeError as error:
        raise NotJson(f"line {error.lineno}, column {error.colno}", error.msg) from None  # noqa: TRY003 - where it is, and why
    except RecursionError:
        raise NotJson("", "it is nested too deeply") from None
    except ValueError:
        raise NotJson("", "it has a number of very many digits") from None
    return value


def _without_comment(found: re.Match[str]) -> str:
    """Blanks in its place, so that an error names the line and column that a person sees."""
    text = found.group()
    return text if text.startswith('"') else re.sub(r"[^\n]", " ", text)


def _without_comma(found: re.Match[str]) -> str:
    return " " if found.group() == "," else found.group()


def _members(pairs: list[tuple[str, object]]) -> Members:
    members = Members(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        members.twice = tuple(name for name, count in counts.items() if count > 1)
    return members
