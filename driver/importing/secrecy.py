"""What is a secret, for all we know, and so must not stand in the configuration.

Part of `driver.importing`, pure: imports nothing of ours.

Nobody can tell a secret by its looks. So what may be one is taken for one: the price of a mistake is a file
too many, and that of the other mistake a token in a repository.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

_TELLING: Final = re.compile(
    r"key|token|secret|pass|pwd|auth|credential|bearer|cookie|session|signature|private|dsn"
    r"|connection|conn-?str|webhook|(?<![a-z])(?:pat|pin|sig|code|jwt|header|h)(?![a-z])",
    re.IGNORECASE,
)
"""Names of variables, options, headers and parameters whose values are secrets."""
_SWITCHES: Final = frozenset(
    {
        "true", "false", "yes", "no", "on", "off", "debug", "info", "warn", "warning", "error", "trace",
        "verbose", "silent", "production", "development", "test", "stdio",
    }
)  # fmt: skip
_SMALL_NUMBER: Final = re.compile(r"[0-9]{1,5}(?:\.[0-9]{1,3})?")
_KNOWN: Final = re.compile(
    r"sk-|sk_|pk_|rk_|ghp_|gho_|ghs_|ghu_|github_pat_|glpat-|xox[a-z]-|AKIA|AIza|eyJ|npm_|hf_"
)
"""How tokens of well-known services begin."""
_RANDOM_CHARS: Final = 16
_RANDOM_OF_EACH: Final = 2
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_OPTION: Final = re.compile(r"(--?[A-Za-z][\w.-]*)=(.+)", re.DOTALL)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.+)", re.DOTALL)
_HEADER: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*):\s*\S.*", re.DOTALL)

_BETWEEN: Final = re.compile(r"[\s;]+")
"""Between the words of a shell's line, and the members of a connection string."""
_FIELD: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*):\s+\S")
"""A header within a longer text."""
_REFERENCE: Final = re.compile(r"\$(?:\w+|\{\w+\})")


@dataclass(frozen=True, slots=True)
class Plain:
    """A part of a word that may be read by anyone."""

    text: str


@dataclass(frozen=True, slots=True)
class Hidden:
    """A part of a word that is a secret, for all we know."""

    text: str = field(repr=False)


Part: TypeAlias = Plain | Hidden


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command line; `foreign` where a part of it came from a variable or a person."""

    text: str = field(repr=False)
    foreign: bool = False


def is_switch(name: str, value: str) -> bool:
    """Whether the variable `name` may be shown with its value: none, a flag, a level or a small number."""
    if not value:
        return True
    harmless = value.lower() in _SWITCHES or _SMALL_NUMBER.fullmatch(value) is not None
    return harmless and not _TELLING.search(name)


def parts(words: Sequence[Word]) -> list[tuple[Part, ...]]:
    """Return the words of a command line, each cut where a secret in it begins."""
    return [_parts(word, words[position - 1].text if position else "") for position, word in enumerate(words)]


def url_is_secret(url: str) -> bool:
    """Whether an address has a part that gives access by itself."""
    try:
        address = urlsplit(url)
    except ValueError:
        return True
    if address.password or _looks_random(unquote(address.username or "")):
        return True
    if any(_looks_random(unquote(segment)) for segment in address.path.split("/")):
        return True
    parameters = parse_qsl(address.query, keep_blank_values=True)
    return bool(address.query and not parameters) or any(
        not is_switch(name, value) and (_TELLING.search(name) or _looks_random(value))
        for name, value in parameters
    )


def _parts(word: Word, before: str) -> tuple[Part, ...]:
    text = word.text
    for form in (_OPTION, _ASSIGNMENT):
        if match := form.fullmatch(text):
            name, value = match.groups()
            variable = form is _ASSIGNMENT and name.isupper() and not is_switch(name, value)
            if variable or word.foreign or _TELLING.search(name) or _is_secret(value):
                return (Plain(f"{name}="), Hidden(value))
            return (Plain(text),)
    follows = before.startswith("-") and "=" not in before and _TELLING.search(before.lstrip("-"))
    if text and (word.foreign or (follows and not text.startswith("-")) or _is_secret(text)):
        return (Hidden(text),)
    return (Plain(text),)


def _is_secret(text: str) -> bool:
    if url_is_secret(text) if "://" in text else _looks_random(text):
        return True
    header = _HEADER.fullmatch(text)
    return (header is not None and _TELLING.search(header[1]) is not None) or _has_secret(text)


def _has_secret(text: str) -> bool:
    """Whether a word is a line of a shell, or another list, with a secret in it: then it is one as a whole.

    What only names a variable is none.
    """
    pieces = [_REFERENCE.sub("", piece.strip("'\"")) for piece in _BETWEEN.split(text)]
    if len(pieces) == 1:
        return False
    if any(_TELLING.search(field[1]) for field in _FIELD.finditer(text)):
        return True
    return any(isinstance(part, Hidden) for word in parts([Word(piece) for piece in pieces]) for part in word)


def _looks_random(text: str) -> bool:
    """Whether no person would have chosen it."""
    if _KNOWN.match(text) or _UUID.search(text):
        return True
    return any(_is_mixed(chunk) for chunk in re.split(r"[^A-Za-z0-9]+", text) if len(chunk) >= _RANDOM_CHARS)


def _is_mixed(chunk: str) -> bool:
    digits = sum(char.isdigit() for char in chunk)
    return digits >= _RANDOM_OF_EACH and len(chunk) - digits >= _RANDOM_OF_EACH
