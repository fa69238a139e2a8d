"""What the metrics say, read as a scraper reads them."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser

from driver.core.attempts import Answered, NotSent, Phase, Silence
from driver.metrics.exposition import Metrics, Moment
from store.events import Draft, OperationDiverged, OperationProbed
from store.lifecycle import State
from store.transaction import Transaction
from tests.driver.engine.rig import DECLARED, Rig, ScriptedProvider, call, command, engine, limits

pytestmark = pytest.mark.anyio

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def moment(rig: Rig) -> Moment:
    """What the daemon says of itself."""
    return Moment(
        software="effectd/test",
        state="ready",
        connected=True,
        connections=2,
        running=rig.dispatcher.slots.in_use,
        waiting=rig.dispatcher.depth,
        refused=rig.intake.refused,
        asked={"failed": 2},
        lines_dropped=3,
    )


@asynccontextmanager
async def measured(folder: Path, provider: ScriptedProvider) -> AsyncGenerator[tuple[Rig, Metrics]]:
    """An engine whose journal is measured."""
    async with engine(folder, provider, bounds=limits(queue_max=3)) as rig:
        yield rig, Metrics(rig.journal, ["tools"], lambda: moment(rig))


async def scrape(metrics: Metrics) -> Samples:
    """Every sample, by name and labels."""
    text = (await metrics.exposition()).decode()
    parse: Callable[[str], Iterable[Metric]] = parser.text_string_to_metric_families  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped there
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def of(samples: Samples, name: str, **labels: str) -> float:
    """One sample."""
    return samples[name, frozenset(labels.items())]


async def test_ends_are_counted_by_provider_and_state(tmp_path: Path) -> None:
    """A provider's outcomes can be told apart; each life counts from zero."""
    provider = ScriptedProvider(answers=[Answered(result={}), Answered(result={}, is_error=True)])
    async with measured(tmp_path, provider) as (rig, metrics):
        for number in (1, 2):
            await rig.intake.deliver([call(f"cmd-{number}", arguments={"n": number})])
            await rig.settled(f"cmd-{number}")
        samples = await scrape(metrics)
    assert of(samples, "effectd_operations_ended_total", provider="tools", state="succeeded") == 1
    assert of(samples, "effectd_operations_ended_total", provider="tools", state="failed") == 1
    assert of(samples, "effectd_attempts_total", provider="tools") == 2
    assert of(samples, "effectd_operations", state="succeeded") == 1


async def test_what_is_open_is_a_gauge_by_provider_and_state(tmp_path: Path) -> None:
    """While it waits, and while it runs; what has ended is in the counter alone."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with measured(tmp_path, provider) as (rig, metrics):
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        samples = await scrape(metrics)
        assert of(samples, "effectd_operations_open", provider="tools", state="started") == 1
        provider.gate.set()
        await rig.settled()
        samples = await scrape(metrics)
    assert not [name for name, _ in samples if name == "effectd_operations_open"]
    assert of(samples, "effectd_operations_ended_total", provider="tools", state="succeeded") == 1


async def test_what_earlier_lives_accepted_has_its_provider(tmp_path: Path) -> None:
    """What they left open, and what is tried again of what had ended: it is their provider's."""
    first = ScriptedProvider(refusals=[NotSent(reason="connect_failed", message="it is down")])
    async with engine(tmp_path, first, contract=DECLARED) as rig:
        await rig.intake.deliver([call("ended")])
        ended = await rig.settled("ended")
        rig.posture.confirmed = False
        await rig.intake.deliver([call("waiting", arguments={"n": 2})])
    async with engine(tmp_path, ScriptedProvider(), contract=DECLARED, confirmed=False) as rig:
        metrics = Metrics(rig.journal, ["tools"], lambda: moment(rig))
        await metrics.recall()
        before = await scrape(metrics)
        rig.desk.history_confirmed()
        await rig.settled("waiting")
        await rig.intake.deliver([command("operation.retry", "retry-1", operation_id=ended.operation_id)])
        await rig.until(lambda record: record.state is State.SUCCEEDED, "ended")
        samples = await scrape(metrics)
    assert of(before, "effectd_operations_open", provider="tools", state="accepted") == 1
    assert of(samples, "effectd_operations_ended_total", provider="tools", state="succeeded") == 2
    assert of(samples, "effectd_attempts_total", provider="tools") == 2


async def test_fsyncs_are_counted_where_they_happen(tmp_path: Path) -> None:
    """A checkpoint that a commit makes by itself, for what is to vanish with it, is one like any other."""
    async with measured(tmp_path, ScriptedProvider()) as (rig, metrics):
        await rig.intake.deliver([call()])
        await rig.settled()
        before = await scrape(metrics)
        await rig.intake.deliver([command("run.erase", "erase-1")])
        await rig.quiet()
        samples = await scrape(metrics)
    checkpoints, commits = (
        of(samples, f"effectd_journal_{name}_total") - of(before, f"effectd_journal_{name}_total")
        for name in ("checkpoints", "commits")
    )
    assert checkpoints >= 1
    fsyncs = of(samples, "effectd_journal_fsyncs_total") - of(before, "effectd_journal_fsyncs_total")
    assert fsyncs == commits + 2 * checkpoints


async def test_a_caller_cannot_make_labels(tmp_path: Path) -> None:
    """A provider that nobody configured has no name here, however many are invented."""
    async with measured(tmp_path, ScriptedProvider()) as (rig, metrics):
        for number in range(3):
            await rig.intake.deliver([call(f"cmd-{number}", tool=f"made-up-{number}/act")])
        samples = await scrape(metrics)
    assert of(samples, "effectd_operations_ended_total", provider="", state="not_executed") == 3
    assert not any("made-up" in value for _, labels in samples for _, value in labels)


async def test_what_may_have_happened_is_a_gauge_with_an_age(tmp_path: Path) -> None:
    """The figure that somebody is woken by."""
    provider = ScriptedProvider(answer=Silence(cause="connection_lost", message="gone"))
    async with measured(tmp_path, provider) as (rig, metrics):
        assert of(await scrape(metrics), "effectd_unsettled_oldest_age_seconds") == 0
        await rig.intake.deliver([call()])
        await rig.settled()
        samples = await scrape(metrics)
    assert of(samples, "effectd_operations_unsettled") == 1
    assert of(samples, "effectd_unsettled_oldest_age_seconds") > 0
    assert of(samples, "effectd_outbox_events") == 3


async def test_commits_have_a_histogram(tmp_path: Path) -> None:
    """Every commit that wrote is timed, and says how many units shared it."""
    async with measured(tmp_path, ScriptedProvider()) as (rig, metrics):
        before = rig.journal.statistics().commits
        await rig.intake.deliver([call()])
        await rig.settled()
        samples = await scrape(metrics)
        commits = rig.journal.statistics().commits - before
    assert of(samples, "effectd_commit_duration_seconds_count") == commits == 2
    assert of(samples, "effectd_commit_units_count") == commits
    assert of(samples, "effectd_journal_fsyncs_total") >= commits


async def test_plain_refusals_are_counted(tmp_path: Path) -> None:
    """They leave no event, and are counted all the same."""
    async with measured(tmp_path, ScriptedProvider()) as (rig, metrics):
        rig.posture.draining = True
        await rig.intake.deliver([call()])
        samples = await scrape(metrics)
    assert of(samples, "effectd_commands_put_off_total", code="draining") == 1
    assert of(samples, "effectd_link_connections_total") == 2


async def test_incidents_are_counted_and_what_is_requeued_is_none(tmp_path: Path) -> None:
    """A contradiction and a duplicate count once, however often their events are reported again."""
    provider = ScriptedProvider(answer=Silence(cause="connection_lost", message="gone"))
    async with measured(tmp_path, provider) as (rig, metrics):
        await rig.intake.deliver([call()])
        done = await rig.settled()

        def tell(tx: Transaction) -> None:
            for data in (
                OperationProbed(verdict="duplicated", matches=2, detail=None),
                OperationDiverged(evidence=(2, 3), detail="they differ"),
            ):
                told = tx.append(Draft(data=data, operation_id=done.operation_id))
                tx.park(told.seq, "invalid", "")

        await rig.journal.transact(tell)
        before = await scrape(metrics)
        await rig.local.requeue(4)
        await rig.local.requeue(5)
        after = await scrape(metrics)
    assert (of(before, "effectd_dead_letters"), of(after, "effectd_dead_letters")) == (2, 0)
    for samples in (before, after):
        assert of(samples, "effectd_divergences_total") == 1
        assert of(samples, "effectd_effects_duplicated_total") == 1
        assert of(samples, "effectd_probes_total", verdict="duplicated") == 1


async def test_what_could_not_be_done_is_counted_by_its_code(tmp_path: Path) -> None:
    """A retry outside of rule R is a refusal to repeat: somebody may see it come again and again."""
    async with measured(tmp_path, ScriptedProvider()) as (rig, metrics):
        await rig.intake.deliver([call()])
        done = await rig.settled()
        await rig.intake.deliver([command("operation.retry", "retry-1", operation_id=done.operation_id)])
        samples = await scrape(metrics)
    assert of(samples, "effectd_commands_failed_total", code="already_occurred") == 1


async def test_questions_to_a_triage_model_are_counted(tmp_path: Path) -> None:
    """Those that came to nothing, too, which no verdict shows."""
    async with measured(tmp_path, ScriptedProvider()) as (_, metrics):
        samples = await scrape(metrics)
    assert of(samples, "effectd_supervisor_calls_total", outcome="failed") == 2
