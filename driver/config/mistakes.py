"""Turns what pydantic finds into problems: the table, the key, what was found and what is allowed.

Part of `driver.config`; imports its models. Values are shown where they help, and never where a secret may
stand: not those of unknown keys, of the environment, or of addresses that carry a password.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from driver.config.document import KINDS, Document, model_of
from driver.config.errors import Problem, TablePath, toml_name
from driver.config.fields import HIDDEN, WANTED

_FOUND_CHARS_MAX: Final = 80
_SECRET_KEYS: Final = frozenset({"env", "env_files", "header_files", "headers"})
_ALLOWED: Final[Mapping[str, str]] = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "string_type": "a string",
    "tuple_type": "an array",
    "too_short": "an array that is not empty",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A problem, and the path of the key (or of the table) that it spoils."""

    problem: Problem
    fault: TablePath


def mistakes(error: ValidationError, document: Document) -> Iterator[Mistake]:
    """Yield each mistake that pydantic found in `document`."""
    for detail in error.errors(include_url=False):
        yield _mistake(detail, document)


def _mistake(detail: ErrorDetails, document: Document) -> Mistake:
    path = _path(detail["loc"])
    named = path[-1] == "[key]"
    if named:
        path = path[:-1]
    table, rest = _split(path, document)
    if named and not rest:
        problem = Problem(table=table, key=None, message=f"the name is wrong; allowed: {_allowed(detail)}")
        return Mistake(problem=problem, fault=table)
    if detail["type"].startswith("union_tag"):
        return Mistake(problem=_wrong_kind(path, detail), fault=path)
    key = rest[0] if rest else path[-1]
    owner = table if rest else table[:-1]
    message = _message(detail, key, owner, document)
    return Mistake(
        problem=Problem(table=owner, key=_position(key, rest[1:]), message=message), fault=(*owner, key)
    )


def _path(loc: tuple[int | str, ...]) -> TablePath:
    """Without the kind of provider, which pydantic puts behind its name."""
    parts = tuple(str(part) for part in loc)
    if parts[0] == "providers" and parts[2:3] and parts[2] in KINDS:
        return (*parts[:2], *parts[3:])
    return parts


def _split(path: TablePath, document: Document) -> tuple[TablePath, TablePath]:
    """Return the innermost table on the way, and what follows: the key, and the place within its value."""
    for length in range(len(path), 0, -1):
        table = path[:length]
        if model_of(table, document) or (length == 2 and table[0] == "providers"):  # noqa: PLR2004 [providers.NAME]
            return table, path[length:]
    return (), path


def _position(key: str, within: TablePath) -> str:
    names = (
        toml_name((key,)),
        *(f"[{part}]" if part.isdigit() else "." + toml_name((part,)) for part in within),
    )
    return "".join(names)


def _wrong_kind(path: TablePath, detail: ErrorDetails) -> Problem:
    allowed = ", ".join(f'"{kind}"' for kind in KINDS)
    table = cast("Mapping[str, object]", detail["input"])
    found = f"found {_found(table['kind'])}" if "kind" in table else "missing, and required"
    return Problem(table=path, key="kind", message=f"{found}; allowed: {allowed}")


def _message(detail: ErrorDetails, key: str, table: TablePath, document: Document) -> str:
    if detail["type"] == "extra_forbidden":
        return _unknown(key, table, document)
    if detail["type"] == "missing":
        return "missing, and required"
    allowed = _allowed(detail)
    if detail["type"] == HIDDEN or key in _SECRET_KEYS:
        return f"allowed: {allowed}"
    return f"found {_found(detail['input'])}; allowed: {allowed}"


def _unknown(key: str, table: TablePath, document: Document) -> str:
    model = model_of(table, document)
    keys = model.keys() if model else ()
    near = difflib.get_close_matches(key, keys, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"unknown key; {hint}allowed: {', '.join(sorted(keys))}"


def _allowed(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    match detail["type"]:
        case kind if kind in {WANTED, HIDDEN}:
            return str(context["allowed"])
        case "literal_error":
            return str(context["expected"]).replace("'", '"')
        case kind:
            return _ALLOWED.get(kind, detail["msg"])


def _found(value: object) -> str:
    """As TOML writes it, cut where it is long; a table or an array only by its name."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value if len(value) <= _FOUND_CHARS_MAX else value[:_FOUND_CHARS_MAX] + "…"}"'
        case int() if abs(value) >= 10**_FOUND_CHARS_MAX:
            return "a whole number of very many digits"
        case int() | float():
            return str(value)
        case dict():
            return "a table"
        case list() | tuple():
            return "an array"
        case _:
            return "a date or time"
