"""What the documentation says is what the code does: keys and defaults, commands, messages, links."""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

import pytest
from jsonschema import Draft202012Validator
from pydantic.fields import FieldInfo

from driver.config.load import parse
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
from store.errors import OpenRefused
from store.folder import entered
from supervisor.prompt import ANSWER_SCHEMA
from tests import cli_reference
from tests.faults.page import lanes, placed

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
NONE: Final = "\N{EN DASH}"
PAGES: Final = sorted((*ROOT.glob("*.md"), *DOCS.rglob("*.md")))


# --- configuration.md


def _models() -> Mapping[str, type[Table]]:
    found = {f"[{name}]": model for name, field in Config.model_fields.items() if (model := _table(field))}
    return {
        **found,
        "[providers.NAME]": McpProviderTable,
        "[providers.NAME.tools.TOOL]": ToolTable,
        "[providers.NAME.tools.TOOL.probe]": ProbeTable,
        "[providers.NAME.tools.TOOL.compensate]": CompensateTable,
    }


KINDS: Final[Mapping[str, tuple[type[Table], type[Table]]]] = {
    "[providers.NAME]` of kind `http": (HttpProviderTable, CommonProviderTable),
    "[providers.NAME.tools.TOOL]` of kind `http": (HttpToolTable, ToolTable),
    "[providers.NAME]` of kind `command": (CommandProviderTable, CommonProviderTable),
    "[providers.NAME.tools.TOOL]` of kind `command": (CommandToolTable, ToolTable),
}
"""For each section about a kind of provider: its model, and the one whose keys stand elsewhere."""
SHARED: Final = {"kind", "tools"}
"""What each kind has of its own, and what means the same everywhere."""


def _table(field: FieldInfo) -> type[Table] | None:
    """The model of a field that is a table, whether it is optional or not."""
    candidates = (field.annotation, *getattr(field.annotation, "__args__", ()))
    return next((item for item in candidates if isinstance(item, type) and issubclass(item, Table)), None)


MODELS: Final = _models()


def _rows(page: str, heading: str) -> dict[str, tuple[str, str]]:
    """The rows of the table below a heading: the first column without its marks, and the two that follow."""
    section = re.split(r"^## ", page, flags=re.MULTILINE)
    text = next(part for part in section if part.startswith(f"`{heading}`\n"))
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", text, flags=re.MULTILINE)
    return {key: (default, meaning) for key, default, meaning in rows}


def _default(field: FieldInfo) -> str:
    """A key's default as the page writes it."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return NONE
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str | Path):
        return f'`"{value}"`'
    if isinstance(value, tuple | dict):
        items = ", ".join(map(str, cast("tuple[object, ...]", value)))
        return "`{}`" if isinstance(value, dict) else f"`[{items}]`"
    return f"`{value:.0f}`"


@pytest.mark.parametrize("heading", MODELS)
def test_every_key_stands_in_the_reference_with_its_default(heading: str) -> None:
    """Each table of configuration.md has exactly the keys of its model, with their true defaults."""
    found = _rows((DOCS / "configuration.md").read_text(), heading)
    expected = {field.alias or name: _default(field) for name, field in MODELS[heading].model_fields.items()}
    if heading == "[driver]":
        expected["id"] = "the host name"
    assert {key: default for key, (default, _) in found.items()} == expected


@pytest.mark.parametrize("heading", KINDS)
def test_every_key_of_a_kind_stands_in_its_section_with_its_default(heading: str) -> None:
    """What a kind of provider has beside the keys of all of them is described where the kind is."""
    model, common = KINDS[heading]
    found = _rows((DOCS / "configuration.md").read_text(), heading)
    own = {name: field for name, field in model.model_fields.items() if name not in common.model_fields}
    expected = {field.alias or name: _default(field) for name, field in own.items() if name not in SHARED}
    assert {key: default for key, (default, _) in found.items()} == expected


def section_of(page: str, heading: str) -> str:
    """The text between a heading and its table."""
    return page.partition(f"## `{heading}`")[2].partition("\n| ")[0]


def test_every_example_of_the_reference_is_valid() -> None:
    """What somebody copies from configuration.md starts."""
    page = (DOCS / "configuration.md").read_text()
    examples = re.findall(r"^```toml\n(.+?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert len(examples) > 1
    for text in examples:
        assert parse(text, Path("effectd.toml")).providers


# --- cli.md


def test_the_command_line_reference_is_what_the_commands_say() -> None:
    """Each command and each option stands in cli.md, in the words of its own help, and nothing else does."""
    assert cli_reference.written() == cli_reference.reference(), "run: python -m tests.cli_reference"


# --- operations.md


def _refusals() -> set[type[OpenRefused]]:
    found = {OpenRefused}
    while (wider := found | {sub for item in found for sub in item.__subclasses__()}) != found:
        found = wider
    return found - {OpenRefused}


def test_every_refusal_of_the_journal_stands_in_the_operations_guide() -> None:
    """The table of startup refusals has one row for each, with words that its error really says."""
    section = (
        (DOCS / "operations.md").read_text().partition("## When it does not start")[2].partition("\n## ")[0]
    )
    phrases = re.findall(r"^\| `(.+?)` \|", section, flags=re.MULTILINE)
    source = {item: inspect.getsource(item) for item in _refusals()}
    # the folder's words stand where it is looked at
    texts = " ".join(
        "\n".join([*source.values(), inspect.getsource(sys.modules[entered.__module__])]).split()
    )
    assert len(phrases) == len(source)
    assert [phrase for phrase in phrases if phrase not in re.sub(r'" f?"', "", texts)] == []


# --- README.md


def test_every_guarantee_names_tests_that_exist() -> None:
    """I1 to I12 each stand in the README, and the tests that it names stand in the files that it links to."""
    page = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| \*\*(I\d+)\*\* .+$", page, flags=re.MULTILINE)
    assert rows == [f"I{number}" for number in range(1, 13)]
    named = re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", page)
    assert len(named) > len(rows)
    missing = [name for name, path in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert missing == []


def test_the_configuration_of_the_readme_is_valid() -> None:
    """What somebody copies from the README starts."""
    text = re.search(r"^```toml\n(.+?)^```", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    assert text is not None
    assert parse(text[1], Path("effectd.toml")).providers.keys() == {"git"}


# --- supervisor.md


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.+?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def test_what_the_page_shows_of_a_model_is_an_answer(tmp_path: Path) -> None:
    """The answer as printed, and that of the program as printed."""
    (example,), (program,) = (_blocks(DOCS / "supervisor.md", name) for name in ("json", "python"))
    (tmp_path / "model.py").write_text(program)
    asked = json.dumps({"messages": [{"role": "user", "content": "<wall>"}]})
    said = subprocess.run(
        [sys.executable, tmp_path / "model.py"], input=asked, capture_output=True, text=True, check=True
    ).stdout
    judge = Draft202012Validator(ANSWER_SCHEMA)
    for text in (example, said):
        assert judge.is_valid(json.loads(text)), text  # pyright: ignore[reportUnknownMemberType] - partial stubs


# --- every page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_configuration_on_a_page_is_valid(page: Path) -> None:
    """What somebody copies starts."""
    for text in _blocks(page, "toml"):
        parse(text, ROOT / "effectd.toml")


def _links(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", text)


# --- reliability.md


def test_every_lane_stands_on_the_page_with_what_it_is_given() -> None:
    """The table of lanes is what `python -m tests.faults.page` makes of those that there are."""
    page = (DOCS / "reliability.md").read_text()
    assert placed(page, "lanes", lanes()) == page


def test_every_bug_of_the_track_record_names_tests_that_exist() -> None:
    """What holds the kind of each bug now stands in the file that the page links to."""
    page = (DOCS / "reliability.md").read_text()
    named = re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", page)
    assert named
    missing = [name for name, path in named if f"def {name}(" not in (DOCS / path).read_text()]
    assert missing == []


# --- links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    """A relative link names a file of this repository, and a fragment one of its headings."""
    for link in _links(page):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, fragment = link.partition("#")
        target = (page.parent / name) if name else page
        assert target.exists(), f"{page.name} links to {link}"
        if fragment:
            headings = re.findall(r"^#+ (.+)$", target.read_text(), flags=re.MULTILINE)
            assert fragment in {_slug(heading) for heading in headings}, f"{page.name} links to {link}"


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
