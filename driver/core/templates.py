"""Values of a tool's declaration that calls fill in: a string `=EXPR` is JMESPath, anything else is literal.

Part of `driver.core`, pure: imports `driver.core.attempts`, `driver.core.expressions` and the store's values.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from driver.core.attempts import ToolCall
from driver.core.expressions import Expression
from store.records import JsonObject, JsonValue

MARK: Final = "="
"""What an expression begins with."""

_Part: TypeAlias = "Expression | list[_Part] | dict[str, _Part] | bool | int | float | str | None"


@dataclass(frozen=True, slots=True)
class Template:
    """A JSON value with expressions in it, compiled once. Raises `InvalidExpression`."""

    source: JsonValue
    _compiled: "_Part" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_compiled", _compile(self.source))

    def fill(self, scope: JsonObject) -> JsonValue:
        """Return the value with each expression replaced by what it yields. Raises `EvaluationFailed`."""
        return _fill(self._compiled, scope)


def scope(call: ToolCall, arguments: JsonObject) -> JsonObject:
    """Return what expressions see of a call. `arguments` are those that the tool gets."""
    return {"key": call.key, "arguments": arguments, "operation_id": call.operation_id}


def blank(source: JsonValue, filled: JsonValue) -> str | None:
    """Return the expression in a template's `source` that yielded null; None where none did."""
    if isinstance(source, str):
        return source if source.startswith(MARK) and filled is None else None
    pairs: Iterable[tuple[JsonValue, JsonValue]] = ()
    if isinstance(source, dict) and isinstance(filled, dict):
        pairs = ((source[name], filled[name]) for name in source)
    elif isinstance(source, list) and isinstance(filled, list):
        pairs = zip(source, filled, strict=True)
    found = (blank(*pair) for pair in pairs)
    return next((text for text in found if text is not None), None)


def _compile(value: JsonValue) -> _Part:
    if isinstance(value, str) and value.startswith(MARK):
        return Expression(value.removeprefix(MARK))
    if isinstance(value, list):
        return [_compile(item) for item in value]
    if isinstance(value, dict):
        return {name: _compile(item) for name, item in value.items()}
    return value


def _fill(part: _Part, values: JsonObject) -> JsonValue:
    if isinstance(part, Expression):
        return part.evaluate(values)
    if isinstance(part, list):
        return [_fill(item, values) for item in part]
    if isinstance(part, dict):
        return {name: _fill(item, values) for name, item in part.items()}
    return part
