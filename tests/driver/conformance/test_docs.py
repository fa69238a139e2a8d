"""The page about the battery says what the battery does."""

from pathlib import Path

from driver.conformance.cases import CASES
from driver.conformance.verdict import MEANING

PAGE = Path(__file__).parents[3] / "docs" / "conformance.md"


def test_the_page_has_each_case_and_each_harm() -> None:
    """Each stands in a table, in the words of the code."""
    page = PAGE.read_text()
    for name, case in CASES.items():
        assert f"| `{name}` | {(case.__doc__ or '').strip()} |" in page
    for harm, meaning in MEANING.items():
        assert f"| `{harm}` | {meaning} |" in page
