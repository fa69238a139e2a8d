"""What is handed to people who operate effectd fits the daemon: alerts, dashboard, and where they lead to."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import promql_parser
import pytest
import yaml
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser

from driver.gateway.calls import Tally
from driver.metrics.exposition import STATES, Known, Metrics, Moment, _Scrape
from driver.metrics.tallies import STATUSES, Tallies
from store.journal import Journal
from tests.driver.engine.rig import ScriptedProvider, engine

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
ALERTS: Final = DOCS / "operations" / "alerts.yaml"
DASHBOARD: Final = DOCS / "operations" / "dashboard.json"
DURATION: Final = re.compile(r"\d+(ms|[smhdwy])")
OF_PROMETHEUS: Final = {"instance", "job", "le"}
"""Labels that a sample gets on its way."""
VARIABLES: Final = {"$__rate_interval": "5m", "$__interval": "1m", "$instance": ".*"}
"""What Grafana puts in, in the order in which it must be replaced."""
SUFFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    "counter": ("_total",),
    "gauge": ("",),
    "info": ("_info",),
    "histogram": ("_bucket", "_sum", "_count"),
}
ALARMING: Final = {
    "effectd_operations_unsettled",
    "effectd_unsettled_oldest_age_seconds",
    "effectd_dead_letters",
    "effectd_outbox_oldest_age_seconds",
    "effectd_fence",
    "effectd_journal_disk_free_bytes",
    "effectd_link_connected",
    "effectd_commit_duration_seconds_bucket",
    "effectd_supervisor_verdicts_total",
    "effectd_effects_duplicated_total",
}
"""What somebody must be told of."""


def _scrape(journal: Journal) -> _Scrape:
    moment = Moment(
        software="effectd/1",
        state="ready",
        connected=True,
        connections=1,
        running=0,
        waiting=0,
        refused={},
        asked={},
        lines_dropped=0,
        gateway=Tally(),
    )
    known = Known(
        now=datetime.now(UTC),
        counts={},
        unsettled=0,
        oldest_unsettled=None,
        outbox=0,
        oldest_unacknowledged=None,
        dead_letters=0,
        fence=None,
    )
    return _Scrape(known, journal.statistics(), moment, Tallies([]))


@pytest.fixture
async def exposed(tmp_path: Path) -> Mapping[str, set[str]]:
    """Each sample that the daemon can expose, with its labels, whether anything was counted yet or not."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        metrics = Metrics(rig.journal, ["tools"], lambda: _scrape(rig.journal).moment)
        families = [*_scrape(rig.journal).collect(), *metrics._registry.collect()]
    found: dict[str, set[str]] = {}
    for family in families:
        labels = {label for sample in family.samples for label in sample.labels}
        labels |= set(getattr(family, "_labelnames", ()))
        for suffix in SUFFIXES[family.type]:
            found[family.name + suffix] = labels
    return found


def _selectors(node: object) -> Iterator[promql_parser.VectorSelector]:
    """Every metric that a query reads."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
        return
    for name in ("expr", "lhs", "rhs", "vector_selector"):
        child = getattr(node, name, None)
        if child is not None:
            yield from _selectors(child)
    for argument in getattr(node, "args", None) or ():
        yield from _selectors(argument)


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return panels


def _queries() -> Iterator[tuple[str, str]]:
    """Every query of the dashboard, as Prometheus gets it, and where it stands."""
    page = json.loads(DASHBOARD.read_text())
    named = [
        (panel["title"], target["expr"]) for panel in page["panels"] for target in panel.get("targets", ())
    ]
    named += [(note["name"], note["expr"]) for note in page["annotations"]["list"]]
    for title, query in named:
        for variable, value in VARIABLES.items():
            query = query.replace(variable, value)  # noqa: PLW2901 - one after the other
        yield title, query


QUERIES: Final = [*((rule["alert"], rule["expr"]) for rule in _rules()), *_queries()]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("where", "query"), QUERIES, ids=[f"{name}-{n}" for n, (name, _) in enumerate(QUERIES)]
)
async def test_every_query_reads_what_the_daemon_exposes(
    where: str, query: str, exposed: Mapping[str, set[str]]
) -> None:
    """It is a query, of metrics that exist, by labels that they have."""
    selectors = list(_selectors(promql_parser.parse(query)))
    assert selectors, where
    for selector in selectors:
        assert selector.name is not None
        assert selector.name in exposed, where
        labels = {matcher.name for matcher in selector.matchers.matchers}
        assert labels <= exposed[selector.name] | OF_PROMETHEUS, where
    known = {label for selector in selectors for label in exposed[str(selector.name)]} | OF_PROMETHEUS
    for grouped in re.findall(r"by \(([^)]*)\)", query):
        assert {label.strip() for label in grouped.split(",")} <= known, where


def test_values_of_labels_are_those_that_the_daemon_uses() -> None:
    """A rule about a state, or a code, that is called otherwise never fires."""
    text = ALERTS.read_text() + DASHBOARD.read_text()
    assert set(re.findall(r'effectd_state\{state="(\w+)"', text)) <= set(STATES)
    codes = re.findall(r'code=~"([\w|]+)"', text)
    assert codes
    source = (DOCS.parent / "driver" / "core" / "admission.py").read_text()
    assert all(f'"{code}"' in source for group in codes for code in group.split("|"))
    statuses = re.findall(r'status!?="(\w+)"', text)
    assert statuses
    supervisor = "".join(path.read_text() for path in (DOCS.parent / "supervisor").rglob("*.py"))
    assert all(f'"{status}"' in supervisor for status in STATUSES)
    assert set(statuses) <= set(STATUSES)


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: rule["alert"])
def test_every_alert_is_whole_and_leads_to_its_runbook(rule: dict[str, Any]) -> None:
    """Its name is a heading of the operations guide; its words name what they are about."""
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert DURATION.fullmatch(rule.get("for", "0s"))
    assert rule["annotations"].keys() == {"summary", "runbook"}
    page, _, fragment = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^### (\w+)$", (DOCS.parent / page).read_text(), flags=re.MULTILINE)
    assert rule["alert"] in headings
    assert fragment == rule["alert"].lower()


@pytest.mark.anyio
async def test_what_an_alert_sees_grow_is_there_before_it_grows(tmp_path: Path) -> None:
    """Prometheus sees no increase where a series begins with what has happened already."""
    async with engine(tmp_path, ScriptedProvider()) as rig:
        calm = replace(_scrape(rig.journal).moment, refused=rig.intake.refused)
        text = (await Metrics(rig.journal, ["tools"], lambda: calm).exposition()).decode()
    parse: Callable[[str], Iterable[Metric]] = parser.text_string_to_metric_families  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped there
    samples = [sample for family in parse(text) for sample in family.samples]
    grown = [
        selector
        for rule in _rules()
        for selector in _selectors(promql_parser.parse(rule["expr"]))
        if str(selector.name).endswith("_total")
    ]
    assert grown
    for selector in grown:
        wanted = {label.name: set(label.value.split("|")) for label in selector.matchers.matchers}
        there = [sample.labels for sample in samples if sample.name == selector.name]
        assert there, selector.name
        for label, values in wanted.items():
            assert values <= {labels[label] for labels in there}, selector.name


@pytest.mark.anyio
@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: rule["alert"])
async def test_what_an_alert_says_is_known_when_it_fires(
    rule: dict[str, Any], exposed: Mapping[str, set[str]]
) -> None:
    """A label that was aggregated away, or never was there, would be empty in the message."""
    selectors = _selectors(promql_parser.parse(rule["expr"]))
    known = {label for selector in selectors for label in exposed[str(selector.name)]} | {"instance"}
    grouped = re.search(r"by \(([^)]*)\)", rule["expr"])
    if grouped is not None:
        known &= {label.strip() for label in grouped[1].split(",")}
    said = re.findall(r"\{\{ \$labels\.(\w+) \}\}", rule["annotations"]["summary"])
    assert set(said) <= known


def test_alerts_have_names_of_their_own_and_every_runbook_an_alert() -> None:
    """Nothing stands twice, and no section is about an alert that is gone."""
    names = [rule["alert"] for rule in _rules()]
    assert len(set(names)) == len(names)
    headings = re.findall(r"^### (Effectd\w+)$", (DOCS / "operations.md").read_text(), flags=re.MULTILINE)
    assert headings == names


def test_everything_that_must_wake_somebody_does() -> None:
    """Each of these has an alert."""
    named = {
        str(selector.name) for rule in _rules() for selector in _selectors(promql_parser.parse(rule["expr"]))
    }
    assert ALARMING - named == set()


def test_the_dashboard_is_laid_out() -> None:
    """No panel lies over another, none is wider than the page, and each has a number of its own."""
    panels = _panels()
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.anyio
async def test_every_metric_stands_on_the_dashboard(exposed: Mapping[str, set[str]]) -> None:
    """But the newest seq, which says nothing by itself."""
    text = " ".join(query for _, query in _queries())
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exposed}
    assert {name for name in families if name not in text} == {
        "effectd_journal_last_seq",
        "effectd_fences_total",
    }
