"""The page about the battery says what the battery does, and what came of it."""

import json
import re
import shlex
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from driver.cli.main import main
from driver.conformance.adapter import PATIENCE_S, START_S
from driver.conformance.battery import ADAPTERS
from driver.conformance.cases import CASE_S, CASES
from driver.conformance.certificate import REVISION, schema
from driver.conformance.verdict import MEANING, Outcome
from tests import certificates
from tests.certificates import published, table
from tests.frameworks import HERE, NAMES

PAGE = certificates.PAGE.read_text()


def test_the_page_has_each_case_each_harm_and_each_outcome() -> None:
    """Each stands in a table, in the words of the code."""
    for name, case in CASES.items():
        assert f"| `{name}` | {(case.__doc__ or '').strip()} |" in PAGE
    for harm, meaning in MEANING.items():
        assert f"| `{harm}` | {meaning} |" in PAGE
    for outcome in Outcome:
        assert f"\n| `{outcome}` | " in PAGE


def test_the_page_has_the_limits_of_the_battery() -> None:
    """How long an adapter may be silent, and a case may last."""
    text = " ".join(PAGE.split())
    assert f"`start` must be answered within {START_S:g} s, all else within {PATIENCE_S:g} s" in text
    assert f"a case ends after {CASE_S:g} s" in text


def test_the_table_is_made_of_the_certificates() -> None:
    """Nothing in it was written by hand."""
    assert certificates.written() == table(published())


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_published_certificate_is_about_this_battery(name: str) -> None:
    """It is of this revision, has each case, and comes from a battery that had judged its own clients."""
    said = published()[name]
    assert (said.revision, said.self_checked, said.adapter) == (REVISION, True, name)
    assert [one.case for one in said.cases] == list(CASES)
    assert (said.passed, said.failed, said.not_exercised) == tuple(
        [one.verdict for one in said.cases].count(verdict)
        for verdict in ("passed", "failed", "not_exercised")
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_published_certificate_is_about_the_versions_that_the_tests_install(name: str) -> None:
    """What is pinned is what was examined: whoever moves one must measure again."""
    said = published()[name]
    versions = {said.version, *said.parts.values()}
    pinned = re.findall(r"==(\S+)", (HERE / f"{name}.txt").read_text())
    assert pinned
    assert set(pinned) <= versions


def test_a_certificate_has_a_schema() -> None:
    """The published schema is the code's, and holds for every published certificate."""
    assert certificates.SCHEMA.read_text() == schema()
    for name in ADAPTERS:
        jsonschema.validate(
            json.loads((certificates.FOLDER / f"{name}.json").read_text()), json.loads(schema())
        )


def test_the_adapter_in_the_page_is_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a newcomer copies from the page, and types, prints what the page says."""
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "adapter.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    [(typed, printed)] = re.findall(r'```\n\$ effectd (conformance "python3 .*?)\n(.*?)```', PAGE, re.DOTALL)
    said = CliRunner().invoke(main, shlex.split(typed))
    assert said.stdout == printed
    assert said.exit_code == 1
