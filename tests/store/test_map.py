"""The map of `store`, which stands in its own docstring."""

import re
from pathlib import Path

import store


def test_the_map_names_every_module_once() -> None:
    """Whoever adds a module says in which room it is."""
    assert store.__doc__ is not None
    assert store.__file__ is not None
    rooms = store.__doc__.partition("The rooms\n")[2]
    named = re.findall(r"[a-z]+", re.sub(r"(?m)^[a-z-]+ ", "", rooms))
    modules = [path.stem for path in Path(store.__file__).parent.glob("*.py") if path.stem != "__init__"]
    assert sorted(named) == sorted(modules)
