"""Writes the tables of docs/configuration.md from the models: `python -m tests.config_reference`.

Each table of the file has a place between two marks of the page: its heading, the docstrings of its models,
and a row for each key. The row's meaning is what stands below the key in the source; its default is the
model's; and what is allowed is what `effectd check` answers to a wrong value, because that is how it is found
out. All that stands outside of the marks is written by hand.
"""

import ast
import datetime as dt
import inspect
import re
import socket
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, cast

from pydantic.fields import FieldInfo

from driver.config.document import Document
from driver.config.errors import ConfigInvalid, TablePath
from driver.config.load import validate
from driver.config.models import Config
from driver.config.providers import (
    CommandProviderTable,
    CommandToolTable,
    CommonProviderTable,
    CompensateTable,
    HttpProviderTable,
    HttpToolTable,
    McpProviderTable,
    ProbeTable,
    ToolTable,
)
from driver.config.table import Table

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"
NONE: Final = "\N{EN DASH}"
WIDTH: Final = 140
WRONG: Final = dt.date(2000, 1, 1)
"""TOML has dates, and no key takes one."""
PROVIDER: Final = ("providers", "x")
TOOL: Final = (*PROVIDER, "tools", "x")
ONCE: Final = frozenset({"kind", "tools"})
"""What each kind of provider has of its own, and what means the same for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table of the file: its heading, where one may stand, and the models that no other section shows."""

    heading: str
    path: TablePath
    models: tuple[type[Table], ...]
    kind: str | None = None

    @property
    def begin(self) -> str:
        return f"<!-- {self.heading}: made by tests.config_reference -->"

    @property
    def end(self) -> str:
        return f"<!-- /{self.heading} -->"


def sections() -> tuple[Section, ...]:
    """Return all tables that there are, those of the daemon in the order of `Config`."""
    return (
        *(
            Section(heading=f"`[{name}]`", path=(name,), models=(model,))
            for name, field in Config.model_fields.items()
            if (model := _table(field))
        ),
        Section(
            heading="`[providers.NAME]`",
            path=PROVIDER,
            models=(McpProviderTable, CommonProviderTable),
            kind="mcp",
        ),
        Section(heading="`[providers.NAME.tools.TOOL]`", path=TOOL, models=(ToolTable,), kind="mcp"),
        Section(
            heading="`[providers.NAME.tools.TOOL.probe]`",
            path=(*TOOL, "probe"),
            models=(ProbeTable,),
            kind="mcp",
        ),
        Section(
            heading="`[providers.NAME.tools.TOOL.compensate]`",
            path=(*TOOL, "compensate"),
            models=(CompensateTable,),
            kind="mcp",
        ),
        *_of_kind("http", HttpProviderTable, HttpToolTable),
        *_of_kind("command", CommandProviderTable, CommandToolTable),
    )


def _of_kind(kind: str, provider: type[Table], tool: type[Table]) -> Iterator[Section]:
    yield Section(
        heading=f"`[providers.NAME]` of kind `{kind}`", path=PROVIDER, models=(provider,), kind=kind
    )
    yield Section(
        heading=f"`[providers.NAME.tools.TOOL]` of kind `{kind}`", path=TOOL, models=(tool,), kind=kind
    )


def _table(field: FieldInfo) -> type[Table] | None:
    """The model of a field that is a table, whether it is optional or not."""
    candidates = (field.annotation, *getattr(field.annotation, "__args__", ()))
    return next((item for item in candidates if isinstance(item, type) and issubclass(item, Table)), None)


def written(page: str) -> str:
    """Return the page with each table as its models are. It must have one place for each."""
    marks = sorted(mark for section in sections() for mark in (section.begin, section.end))
    assert sorted(re.findall(r"^<!-- .+ -->$", page, flags=re.MULTILINE)) == marks, (
        "a place too few or too many"
    )
    for section in sections():
        before, _, rest = page.partition(section.begin)
        after = rest.partition(section.end)[2]
        page = before + "\n".join((section.begin, reference(section), section.end)) + after
    return page


def reference(section: Section) -> str:
    """Return a table's heading, what introduces it, and its keys."""
    texts = [" ".join((model.__doc__ or "").split()) for model in reversed(section.models)]
    intro = [textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False) for text in texts]
    head = "| key | allowed | default | meaning |\n|---|---|---|---|"
    return "\n\n".join((f"## {section.heading}", *intro, "\n".join((head, *rows(section)))))


def rows(section: Section) -> Iterator[str]:
    """Yield a row for each key: its own first, then those that it shares with other kinds."""
    seen = set[str]() if section.models[-1] is CommonProviderTable else set(ONCE)
    for model in section.models:
        said = meanings(model)
        for name in inspect.get_annotations(model):
            if name in seen:
                continue
            seen.add(name)
            assert name in said, f"{model.__name__}.{name}: say below it what it means"
            field = model.model_fields[name]
            key = field.alias or name
            cells = (f"`{key}`", allowed(section, key), default(field), said[name].replace("|", "\\|"))
            yield f"| {' | '.join(cells)} |"


def meanings(model: type[Table]) -> dict[str, str]:
    """Return what stands below each key of the class in its source."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for statement, below in pairwise(tree.body):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
            case _:
                pass
    return found


def default(field: FieldInfo) -> str:
    """Return a key's default as TOML writes it."""
    if field.is_required():
        return "required"
    if field.default_factory is socket.gethostname:
        return "the host name"
    value = cast("object", field.get_default(call_default_factory=True))
    match value:
        case None:
            return NONE
        case bool():
            return f"`{str(value).lower()}`"
        case str() | Path():
            return f'`"{value}"`'
        case tuple():
            return f"`[{', '.join(map(str, cast('tuple[object, ...]', value)))}]`"
        case float() if value.is_integer():
            return f"`{value:.0f}`"
        case _:
            return f"`{value}`"


def allowed(section: Section, key: str) -> str:
    """Return which values the key takes: type, range or choices, and unit."""
    text = _answer(section, key, WRONG)
    assert text is not None, f"{section.heading} {key} takes a date"
    if text == "an array":
        text = _answer(section, key, []) or text
        text += f"; each item: {_answer(section, key, [WRONG])}"
    elif text == "a table" and (value := _answer(section, key, {"x": WRONG})):
        text += f"; each value: {value}"
    return re.sub(r'"[^"]*"', lambda quoted: f"`{quoted[0]}`", text).replace("|", "\\|")


def _answer(section: Section, key: str, value: object) -> str | None:
    """What is said to be allowed where the key has this value, or within it; None where nothing is wrong."""
    try:
        validate(_document(section, key, value), Path("effectd.toml"))
    except ConfigInvalid as error:
        for problem in error.problems:
            of_key = problem.table == section.path and re.match(rf"{key}\b", problem.key or "")
            before, _, said = problem.message.partition("allowed: ")
            if of_key and said and not before.startswith("unknown"):
                return said
    return None


def _document(section: Section, key: str, value: object) -> Document:
    tables: dict[str, object] = {}
    table = tables
    for name in section.path:
        within: dict[str, object] = {}
        table[name] = within
        if section.path[:2] == PROVIDER and table is tables.get("providers"):
            within["kind"] = section.kind
        table = within
    table[key] = value
    return tables


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
