"""Templates: what begins with `=` is an expression, at any depth, and everything else is itself."""

import pytest

from driver.core.attempts import ToolCall
from driver.core.expressions import EvaluationFailed, InvalidExpression
from driver.core.templates import Template, scope
from store.records import JsonObject, JsonValue, OperationId

VALUES: JsonObject = {"key": "op_1", "arguments": {"a": "=b", "n": 3}, "operation_id": "op_1"}


@pytest.mark.parametrize(
    ("source", "filled"),
    [
        ("plain", "plain"),
        ("=arguments.n", 3),
        ("=key", "op_1"),
        ("=arguments.nothing", None),
        ({"x": ["=arguments.n", {"y": "=operation_id"}], "z": True}, {"x": [3, {"y": "op_1"}], "z": True}),
        ({"=key": 1}, {"=key": 1}),
        ("=arguments.a", "=b"),
        (None, None),
    ],
)
def test_a_template_is_filled_at_any_depth(source: JsonValue, filled: JsonValue) -> None:
    """Names are literal, a missing argument is null, and what an expression yields is not evaluated again."""
    assert Template(source).fill(VALUES) == filled


def test_a_template_is_compiled_when_it_is_made() -> None:
    """A wrong expression is found before any call, however deep it stands."""
    with pytest.raises(InvalidExpression):
        Template({"x": ["=a["]})


def test_a_value_that_does_not_suit_an_expression_is_an_error() -> None:
    """What cannot be evaluated is never passed over."""
    with pytest.raises(EvaluationFailed):
        Template(["=abs(arguments.a)"]).fill(VALUES)


def test_expressions_see_the_key_the_arguments_and_the_operation() -> None:
    """Three names, and nothing else."""
    call = ToolCall(
        operation_id=OperationId("op_1"), attempt=2, tool="t", arguments={"a": 1}, key="op_1", timeout_s=1
    )
    assert scope(call, {"a": 1, "k": "op_1"}) == {
        "key": "op_1",
        "arguments": {"a": 1, "k": "op_1"},
        "operation_id": "op_1",
    }
