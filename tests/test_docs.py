"""What the documentation says is what the code does: keys and defaults, commands, messages, links."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from jsonschema import Draft202012Validator

from driver.config.load import parse
from driver.config.models import Config, LogTable
from driver.config.table import Table
from store.errors import OpenRefused
from store.folder import entered
from supervisor.prompt import ANSWER_SCHEMA
from tests import cli_reference, config_reference
from tests.faults.page import lanes, placed

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted((*ROOT.glob("*.md"), *DOCS.rglob("*.md")))


# --- configuration.md


CONFIGURATION: Final = DOCS / "configuration.md"


def test_the_configuration_reference_is_what_the_models_say() -> None:
    """Each table and each key stands in configuration.md as the models have it, and nothing else does."""
    page = CONFIGURATION.read_text()
    assert config_reference.written(page) == page, "run: make reference"


@pytest.mark.parametrize(
    ("true", "wrong"),
    [
        ("## `[log]`", "## `[logs]`"),
        ("| `drain_s` |", "| `drain` |"),
        ("| `64` | Operations that execute", "| `65` | Operations that execute"),
        ("| a whole number of bytes from 1,024 |", "| a whole number from 1 |"),
        ("The least severe lines", "The most severe lines"),
        ("What is written to standard error", "What is written to a file"),
    ],
)
def test_whatever_the_page_says_otherwise_than_the_models_is_found(true: str, wrong: str) -> None:
    """The control: a heading, a key, a default, a range, a meaning, an introduction is another one."""
    page = CONFIGURATION.read_text()
    assert page.count(true) == 1
    assert config_reference.written(page.replace(true, wrong)) == page


def test_whatever_the_models_say_otherwise_than_the_page_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a default is another one, a key is gone; and a key without its meaning is refused."""
    page = CONFIGURATION.read_text()
    with monkeypatch.context() as changed:
        changed.setattr(LogTable.model_fields["level"], "default", "debug")
        assert config_reference.written(page) != page
    with monkeypatch.context() as changed:
        changed.delitem(LogTable.__annotations__, "level")
        assert config_reference.written(page) != page
    monkeypatch.setitem(LogTable.__annotations__, "colour", bool)
    with pytest.raises(AssertionError, match="say below it what it means"):
        config_reference.written(page)


def test_every_model_of_the_configuration_has_a_place_on_the_page() -> None:
    """No kind of table can be added that the reference does not show; a page without its place is refused."""
    models = {Table}
    while (wider := models | {sub for model in models for sub in model.__subclasses__()}) != models:
        models = wider
    shown = {model for section in config_reference.sections() for model in section.models}
    assert {model for model in models if model.__module__.startswith("driver.")} - {Table, Config} == shown
    page = CONFIGURATION.read_text().replace("<!-- /`[log]` -->\n", "")
    with pytest.raises(AssertionError, match="a place too few"):
        config_reference.written(page)


def test_every_example_of_the_reference_is_valid() -> None:
    """What somebody copies from configuration.md starts."""
    page = CONFIGURATION.read_text()
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


# --- README.md and guarantees.md


GUARANTEES: Final = DOCS / "guarantees.md"


def test_every_guarantee_names_tests_that_exist() -> None:
    """I1 to I12 each stand in the README, and on their page with tests that stand where it says."""
    numbers = [f"I{number}" for number in range(1, 13)]
    assert (
        re.findall(r"^\| \*\*(I\d+)\*\* \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE) == numbers
    )
    sections = re.split(r"^## (I\d+): .+\n", GUARANTEES.read_text(), flags=re.MULTILINE)
    assert sections[1::2] == numbers
    named = [re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", section) for section in sections[2::2]]
    assert all(named)
    tests = [test for section in named for test in section]
    missing = [name for name, path in tests if f"def {name}(" not in (DOCS / path).read_text()]
    assert missing == []


def test_every_guarantee_has_one_name() -> None:
    """The README, the page of guarantees and the page of what attacks them call each one the same."""
    readme = re.findall(
        r"^\| \*\*(I\d+)\*\* \| (.+?) \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE
    )
    assert re.findall(r"^## (I\d+): (.+)$", GUARANTEES.read_text(), flags=re.MULTILINE) == readme
    promise = re.findall(
        r"^\| \*\*(I\d+)\*\* (.+?) \|", (DOCS / "reliability.md").read_text(), flags=re.MULTILINE
    )
    assert promise == readme


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
