"""JMESPath expressions that tool contracts carry: compiled once, evaluated without surprises.

Part of `driver.core`, pure: imports only `store.records`. What an expression yields is JSON, or an error.

    ExpressionError
     ├── InvalidExpression    the text is no JMESPath
     └── EvaluationFailed     it met a value that it cannot work on, or yields something that is no JSON
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import jmespath
from jmespath.exceptions import ArityError, JMESPathError, JMESPathTypeError, UnknownFunctionError
from jmespath.parser import ParsedResult

from store.records import JsonObject, JsonValue


class ExpressionError(Exception):
    """Something about an expression is wrong: `text` is the expression, `detail` says what."""

    def __init__(self, text: str, detail: str) -> None:
        self.text = text
        self.detail = detail
        super().__init__(f"the JMESPath expression {text!r} {detail}")


class InvalidExpression(ExpressionError):
    """The text cannot be compiled."""


class EvaluationFailed(ExpressionError):
    """The value at hand does not suit the expression. Its text never quotes that value: it may be secret."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled JMESPath expression; two are equal where their texts are. Raises `InvalidExpression`."""

    text: str
    _compiled: ParsedResult = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            compiled = jmespath.compile(self.text)
        except (JMESPathError, RecursionError) as error:
            raise InvalidExpression(self.text, f"cannot be compiled: {error}") from error
        object.__setattr__(self, "_compiled", compiled)

    def evaluate(self, value: JsonObject) -> JsonValue:
        """Return what the expression selects from `value`, None where nothing matches.

        Raises `EvaluationFailed`.
        """
        try:
            found: object = self._compiled.search(value)
        except (JMESPathError, ArithmeticError, RecursionError, TypeError, ValueError) as error:
            raise EvaluationFailed(self.text, f"cannot be evaluated here: {_fault(error)}") from error
        if not _is_json(found):
            raise EvaluationFailed(self.text, "yields a value that is no JSON")
        return cast("JsonValue", found)

    def members(self, name: str) -> frozenset[str]:
        """Return the names of the members that the expression looks at in the member `name` of its value."""
        return frozenset(_members(cast("dict[str, Any]", self._compiled.parsed), name))


def _members(node: dict[str, Any], name: str) -> Iterator[str]:
    """Yield what `name.MEMBER` names anywhere in a parsed expression."""
    children: list[Any] = node["children"]
    if node["type"] == "subexpression" and _field(children[0]) == name:
        member = _field(children[1])
        if member is not None:
            yield member
    for child in children:
        if isinstance(child, dict):
            yield from _members(cast("dict[str, Any]", child), name)


def _field(node: dict[str, Any]) -> str | None:
    """The name that a node begins with: `a` of `a` and of `a[0]`."""
    while node["type"] == "index_expression":
        node = node["children"][0]
    return cast("str", node["value"]) if node["type"] == "field" else None


def _fault(error: Exception) -> str:
    """What is wrong, without the value that JMESPath itself would quote."""
    if isinstance(error, JMESPathTypeError):
        return f"{error.function_name}() takes {' or '.join(error.expected_types)}, not {error.actual_type}"
    return str(error) if isinstance(error, ArityError | UnknownFunctionError) else type(error).__name__


def _is_json(value: object) -> bool:
    """JMESPath's expression references (`&name`) are the values that are not; containers can hold them."""
    if isinstance(value, list):
        return all(_is_json(item) for item in cast("list[object]", value))
    if isinstance(value, dict):
        return all(_is_json(item) for item in cast("dict[str, object]", value).values())
    return value is None or isinstance(value, bool | int | float | str)
