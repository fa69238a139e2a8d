"""What is wrong with a request is said in our own words: what it must be, and never as a library has it."""

import pytest
from pydantic import BaseModel, ValidationError

from driver.core.fields import wording
from driver.local.app import ENDPOINTS

WRONG: tuple[object, ...] = (
    None,
    1,
    1.5,
    True,
    "",
    "x y",
    "ü" * 3_000,
    [],
    [1, ""],
    [""] * 99,
    {"a": 1},
    "99" * 9,
)
MODELS = sorted(
    {model for each in ENDPOINTS for model in (each.query, each.body) if model is not None},
    key=lambda model: model.__name__,
)


@pytest.mark.parametrize("model", MODELS)
def test_whatever_is_wrong_is_said_in_our_words(model: type[BaseModel]) -> None:
    """Each member with each wrong value, one that there is not, and no object at all."""
    asked: list[object] = [{name: value} for name in (*model.model_fields, "none") for value in WRONG]
    said = [text for wanted in (*asked, *WRONG) for text in faults(model, wanted)]
    assert said
    assert all(text[0].islower() for text in said)


def test_a_name_that_there_is_not_is_told_of_those_that_there_are() -> None:
    """What to write instead stands beside it."""
    model = next(model for model in MODELS if model.__name__ == "Unfencing")
    assert faults(model, {"accept": True}) == ["there is no such name; allowed: accept_rollback"]


def faults(model: type[BaseModel], wanted: object) -> list[str]:
    """What is said of a value that is no such model; nothing where it is one."""
    try:
        model.model_validate(wanted)
    except ValidationError as error:
        return [wording(fault, model.model_fields) for fault in error.errors()]
    return []
