"""Expressions: what they yield is JSON, or an error that quotes nothing of what they saw."""

import pytest

from driver.core.expressions import EvaluationFailed, Expression, InvalidExpression
from store.records import JsonObject

SECRET = "hunter2-hunter2"
VALUE: JsonObject = {"secret": SECRET, "list": [1, "a", SECRET], "object": {"a": [SECRET]}, "n": 3}


def test_an_expression_yields_what_it_selects() -> None:
    """Null where nothing matches; two expressions with one text are equal."""
    assert Expression("object.a[0]").evaluate(VALUE) == SECRET
    assert Expression("nothing.at.all").evaluate(VALUE) is None
    assert Expression("n") == Expression("n")


@pytest.mark.parametrize("text", ["", "a[", "a.b c", "((" * 5_000])
def test_what_is_no_expression_is_found_when_it_is_made(text: str) -> None:
    """Nothing waits for the first call to be found wrong."""
    with pytest.raises(InvalidExpression):
        Expression(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("abs(secret)", "abs() takes number, not string"),
        ("join(',', list)", "join() takes array-string"),
        ("sum(list)", "sum() takes array-number"),
        ("no_such_function(secret)", "no_such_function"),
        ("abs(n, n)", "abs()"),
        ("sort(list)", "sort() takes"),
        ("sort_by(list, &@)", "sort_by() takes"),
        ("&secret", "no JSON"),
        ("[&secret]", "no JSON"),
    ],
)
def test_an_expression_that_fails_names_itself_and_quotes_no_value(text: str, says: str) -> None:
    """Errors reach events and people; arguments may be secret."""
    with pytest.raises(EvaluationFailed) as raised:
        Expression(text).evaluate(VALUE)
    assert says in str(raised.value)
    assert text in str(raised.value)
    assert SECRET not in str(raised.value)
