"""The maps of folders with many modules, which stand in their own docstrings."""

import re
from importlib import import_module
from pathlib import Path

import pytest

MAPPED = (
    "store",
    "supervisor",
    "driver.core",
    "driver.engine",
    "driver.gateway",
    "driver.local",
    "driver.providers.command",
    "driver.providers.http",
    "driver.providers.mcp",
)


@pytest.mark.parametrize("name", MAPPED)
def test_a_map_names_every_module(name: str) -> None:
    """Whoever adds a module says where it belongs."""
    package = import_module(name)
    assert package.__doc__ is not None
    assert package.__file__ is not None
    named = set(re.findall(r"[a-z_]+", package.__doc__))
    modules = {path.stem for path in Path(package.__file__).parent.glob("*.py")} - {"__init__"}
    assert modules - named == set()


def test_the_map_of_the_store_names_nothing_else() -> None:
    """Its rooms are a list of modules, each in one of them."""
    package = import_module("store")
    assert package.__doc__ is not None
    assert package.__file__ is not None
    rooms = package.__doc__.partition("The rooms\n")[2]
    named = re.findall(r"[a-z]+", re.sub(r"(?m)^[a-z-]+ ", "", rooms))
    modules = [path.stem for path in Path(package.__file__).parent.glob("*.py") if path.stem != "__init__"]
    assert sorted(named) == sorted(modules)
