"""What the battery says of a subject, as a document for machines.

Part of `driver.conformance`. `python -m driver.conformance.certificate` writes its JSON Schema, which stands
in docs/conformance/certificate.schema.json.
"""

import json
import platform
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from driver.conformance.adapter import DEADLINE_S, About
from driver.conformance.cases import CASES, Found
from driver.conformance.verdict import Harm, Outcome

REVISION: Final = 3
"""Of the battery: a certificate names it, since other cases would be another examination."""

Verdict = Literal["passed", "failed", "not_exercised"]
Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Judged(_Part):
    """One case, and what came of it."""

    case: str
    verdict: Verdict
    """`failed` where somebody would come to harm, `not_exercised` where what it is about never happened."""
    harms: tuple[Harm, ...]
    """Sorted; docs/conformance.md says what each means. Never empty where the case failed."""
    told: Outcome
    """What the caller was told last."""
    effects: Count
    """How many effects the command had."""
    calls: Count
    """How many calls of it reached the tool."""
    seconds: Annotated[float, Field(ge=0)]
    """How long the case took."""


class Certificate(_Part):
    """What can be said of a subject."""

    battery: Literal["effectd conformance"] = "effectd conformance"
    revision: int = REVISION
    """Of the battery: certificates of different revisions are not about the same examination."""
    battery_version: str
    """The version of effectd that the battery came with."""
    self_checked: bool
    """Whether the battery judged its own clients before, and rightly."""
    adapter: str
    """The adapter's name, or its command, as it was asked for."""
    runtime: str
    version: str
    parts: dict[str, str]
    """What else the runtime is made of, with versions, as its adapter says."""
    platform: str
    """The operating system, the machine, and the Python that the battery ran on."""
    at: datetime
    """When it ended; UTC."""
    deadline_s: float
    """That every call was given."""
    complete: bool
    """Whether every case of the battery was played."""
    conforms: bool
    """Whether every case was played, none failed, and at least one passed."""
    passed: Count
    failed: Count
    not_exercised: Count
    cases: tuple[Judged, ...]

    def as_json(self) -> dict[str, JsonValue]:
        """Return it for machines; times are UTC, durations in seconds."""
        return self.model_dump(mode="json")


def judged(case: str, found: Found, seconds: float) -> Judged:
    """Return what a case came to."""
    verdict: Verdict = "failed" if found.harms else "passed" if found.exercised else "not_exercised"
    return Judged(
        case=case,
        verdict=verdict,
        harms=tuple(sorted(found.harms)),
        told=found.told,
        effects=found.effects,
        calls=found.calls,
        seconds=round(seconds, 2),
    )


def certificate(adapter: str, about: About, cases: Sequence[Judged], *, self_checked: bool) -> Certificate:
    """Return what all cases together say, as of now."""
    counts, complete = _counts(cases), {one.case for one in cases} == {*CASES}
    return Certificate(
        battery_version=metadata.version("effectd"),
        self_checked=self_checked,
        adapter=adapter,
        runtime=about.runtime,
        version=about.version,
        parts=dict(about.parts),
        platform=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        at=datetime.now(UTC).replace(microsecond=0),
        deadline_s=DEADLINE_S,
        complete=complete,
        conforms=complete and not counts["failed"] and bool(counts["passed"]),
        cases=tuple(cases),
        **counts,
    )


def _counts(cases: Iterable[Judged]) -> dict[Verdict, int]:
    verdicts = [one.verdict for one in cases]
    names: tuple[Verdict, ...] = ("passed", "failed", "not_exercised")
    return {name: verdicts.count(name) for name in names}


def schema() -> str:
    """Return the JSON Schema of a certificate, as it stands in docs."""
    return json.dumps(Certificate.model_json_schema(mode="serialization"), indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema())
