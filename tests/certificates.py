"""Examines the adapters that come with effectd, and publishes what they do: `python -m tests.certificates`.

Each certificate is a file of docs/conformance, and docs/conformance.md has a table that is made of all of
them. With names, only those are examined; `--page` examines none, and writes the table and the schema anew.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio

from driver.conformance.battery import ADAPTERS, built_in, examine, self_check
from driver.conformance.cases import CASES
from driver.conformance.certificate import Certificate, Judged, schema
from tests.frameworks import ENVIRONMENTS, NAMES

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = DOCS / "conformance.md"
FOLDER: Final = DOCS / "conformance"
SCHEMA: Final = FOLDER / "certificate.schema.json"
BEGIN: Final = "<!-- written by `python -m tests.certificates` -->\n"
END: Final = "<!-- /certificates -->"
WORDS: Final = MappingProxyType(
    {"passed": "passed", "not_exercised": "not exercised", "failed": "**failed**"}
)


def published() -> dict[str, Certificate]:
    """Return the certificates as they stand in docs, by the name of the adapter."""
    return {name: Certificate.model_validate_json(_file(name).read_text()) for name in ADAPTERS}


def table(certificates: Mapping[str, Certificate]) -> str:
    """Return the table of all certificates, for the page."""
    every = certificates.values()
    head = [
        f"| | {' | '.join(f'[{name}](conformance/{name}.json)' for name in certificates)} |",
        f"|---|{'---|' * len(certificates)}",
        _row("version", (one.version for one in every)),
        _row(
            "with", (", ".join(f"{part} {version}" for part, version in one.parts.items()) for one in every)
        ),
        _row("examined", (f"{one.at:%Y-%m-%d}" for one in every)),
    ]
    cases = [_row(f"`{case}`", (_word(_of(one, case)) for one in every)) for case in CASES]
    counts = (f"{one.passed} / {one.failed} / {one.not_exercised}" for one in every)
    return "\n".join([*head, *cases, _row("passed / failed / not exercised", counts), ""])


def written() -> str:
    """Return the table as it stands in the page."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def main(arguments: list[str]) -> int:
    """Examine, and write."""
    if arguments != ["--page"]:
        anyio.run(self_check, _watch)
        for name in arguments or ADAPTERS:
            _publish(name)
    SCHEMA.write_text(schema())
    text = re.sub(
        f"{re.escape(BEGIN)}.*?{re.escape(END)}",
        lambda _: BEGIN + table(published()) + END,
        PAGE.read_text(),
        flags=re.DOTALL,
    )
    PAGE.write_text(text)
    return 0


def command(name: str) -> tuple[str, ...]:
    """Return the command of an adapter that comes with effectd, where the tests have it."""
    return built_in(name, str(ENVIRONMENTS / name / "bin" / "python")) if name in NAMES else built_in(name)


def _publish(name: str) -> None:
    said = anyio.run(partial(examine, name, command(name), told=_told, watch=_watch, self_checked=True))
    _file(name).write_text(json.dumps(said.as_json(), indent=2) + "\n")


def _file(name: str) -> Path:
    return FOLDER / f"{name}.json"


def _of(certificate: Certificate, case: str) -> Judged:
    return next(one for one in certificate.cases if one.case == case)


def _word(one: Judged) -> str:
    harms = ", ".join(f"`{harm}`" for harm in one.harms)
    return f"{WORDS[one.verdict]}: {harms}" if harms else WORDS[one.verdict]


def _row(head: str, cells: Iterable[str]) -> str:
    return f"| {head} | {' | '.join(cells)} |"


def _told(one: Judged) -> None:
    sys.stderr.write(f"  {one.verdict} {one.case} {', '.join(one.harms)}\n")


def _watch(adapter: str, case: str, seconds: float) -> None:
    sys.stderr.write(f"{adapter}: {case}, for {seconds:.0f} s\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
