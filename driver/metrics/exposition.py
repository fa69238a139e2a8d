"""The metrics as OpenMetrics text: the counters, and what is true at the moment of the scrape.

Part of `driver.metrics`; imports `store` and its own siblings. A scrape is one bounded read of the journal;
nothing in it depends on how long the history is.

Labels take their values from closed sets (states, kinds, codes, the configured providers): what a caller
sends never becomes a label.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from driver.metrics.tallies import Tallies
from store.journal import Journal
from store.records import Fence, Timestamp, moment
from store.statistics import JournalStatistics
from store.view import View

_encode, _ = choose_encoder("application/openmetrics-text; version=1.0.0")

STATES: Final = ("starting", "ready", "draining", "fenced")

_COMMIT_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""From a disk with a battery behind it to one that is about to fail."""
_BATCH: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_PAGE: Final = 500
_FSYNCS_A_CHECKPOINT: Final = 2
"""SQLite syncs the `-wal` before it copies pages, and the file after (sqlite.org/wal.html, checkpointing)."""


class GatewayFigures(Protocol):
    """What the gateway did since its start, and how many relays are connected now."""

    connections: int
    calls: int
    attached: int
    refused: int
    replayed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What the rest of the daemon says at a scrape."""

    software: str
    state: str
    connected: bool | None
    """None: stand-alone."""
    connections: int
    running: int
    waiting: int
    refused: Mapping[str, int]
    """Commands that were refused without being remembered, by code."""
    asked: Mapping[str, int]
    """Questions to a triage model that costs something, by what became of them."""
    lines_dropped: int
    """Of the log."""
    gateway: GatewayFigures | None = None
    """None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the journal says at a scrape."""

    now: datetime
    counts: Mapping[str, int]
    unsettled: int
    oldest_unsettled: Timestamp | None
    outbox: int
    oldest_unacknowledged: Timestamp | None
    dead_letters: int
    fence: Fence | None


def known(view: View) -> Known:
    """Return what a scrape needs, in the journal's thread. Bounded."""
    unsettled, oldest = view.unsettled()
    first = view.event(view.acked_seq + 1) if view.acked_seq < view.last_seq else None
    return Known(
        now=view.now,
        counts={state.value: count for state, count in view.counts().items()},
        unsettled=unsettled,
        oldest_unsettled=oldest,
        outbox=view.last_seq - view.acked_seq,
        oldest_unacknowledged=None if first is None else first.at,
        dead_letters=view.parked(),
        fence=view.fence,
    )


class Metrics:
    """All metrics of one process life. Counting begins when it is made."""

    def __init__(self, journal: Journal, providers: Collection[str], look: Callable[[], Moment]) -> None:
        self._journal = journal
        self._look = look
        self.tallies = Tallies(providers)
        """What was counted since."""
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "effectd_commit_duration_seconds",
            "How long group commits took, fsync included.",
            buckets=_COMMIT_S,
            registry=self._registry,
        )
        self._units = Histogram(
            "effectd_commit_units",
            "How many units of work shared one commit.",
            buckets=_BATCH,
            registry=self._registry,
        )
        journal.subscribe(self.tallies.note)
        journal.watch(self._timed)

    async def recall(self) -> None:
        """Take note of the operations that earlier lives left open: their events do not say whose they are.

        To be awaited before anything is recorded of them. Raises what `Journal.read` does.
        """
        after = 0
        while page := await self._journal.read(partial(View.open_operations, after_seq=after, limit=_PAGE)):
            self.tallies.recall(page)
            after = page[-1].accepted_seq

    async def exposition(self) -> bytes:
        """Return the metrics as OpenMetrics text. Raises what `Journal.read` does."""
        scrape = _Scrape(
            await self._journal.read(known), self._journal.statistics(), self._look(), self.tallies
        )
        self._registry.register(scrape)
        try:
            return _encode(self._registry)
        finally:
            self._registry.unregister(scrape)

    def _timed(self, seconds: float, units: int) -> None:
        self._seconds.observe(seconds)
        self._units.observe(units)


@dataclass(frozen=True, slots=True, eq=False)
class _Scrape(Collector):
    known: Known
    statistics: JournalStatistics
    moment: Moment
    tallies: Tallies

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("effectd_build", "The software.", value={"software": self.moment.software})
        yield from self._operations()
        yield from self._outbox()
        yield from self._journal()
        yield from self._daemon()
        yield from self._gateway()

    def _operations(self) -> Iterator[Metric]:
        known, tallies, now = self.known, self.tallies, self.moment
        yield _by("effectd_operations", "Operations in the journal.", "state", known.counts)
        yield _gauge("effectd_operations_unsettled", "Writes that may have happened.", known.unsettled)
        text = "How long the oldest unsettled operation has been; 0 where there is none."
        yield _gauge("effectd_unsettled_oldest_age_seconds", text, _age_s(known.oldest_unsettled, known.now))
        yield _gauge("effectd_operations_running", "Operations that hold a slot.", now.running)
        yield _gauge("effectd_operations_waiting", "Operations that wait for one.", now.waiting)
        family = GaugeMetricFamily(
            "effectd_operations_open", "Operations that have not ended.", labels=("provider", "state")
        )
        for (provider, state), count in sorted(tallies.open.items()):
            family.add_metric((provider, state), count)
        yield family
        ended = CounterMetricFamily("effectd_operations_ended", _since("Ends."), labels=("provider", "state"))
        for (provider, state), count in sorted(tallies.ended.items()):
            ended.add_metric((provider, state), count)
        yield ended
        yield _counted("effectd_attempts", "Attempts.", "provider", tallies.attempts)
        yield _counted("effectd_probes", "Probes.", "verdict", tallies.probes)
        yield _count("effectd_divergences", "Contradictions of proof.", tallies.divergences)
        yield _count("effectd_effects_duplicated", "Probes that found an effect twice.", tallies.duplicated)
        yield _counted("effectd_supervisor_calls", "Questions to a paid model.", "outcome", now.asked)
        yield _counted("effectd_supervisor_verdicts", "Triages.", "status", tallies.verdicts)
        yield _counted("effectd_commands_refused", "Final refusals.", "code", tallies.refused)
        yield _counted("effectd_commands_put_off", "Plain refusals.", "code", now.refused)
        text = "Commands that could not be done: retries outside of rule R, verdicts too late."
        yield _counted("effectd_commands_failed", text, "code", tallies.failed)

    def _outbox(self) -> Iterator[Metric]:
        known = self.known
        yield _gauge("effectd_outbox_events", "Events that the plane has not acknowledged.", known.outbox)
        text = "How long the oldest of them has been; 0 where there is none."
        age_s = _age_s(known.oldest_unacknowledged, known.now)
        yield _gauge("effectd_outbox_oldest_age_seconds", text, age_s)
        yield _gauge("effectd_dead_letters", "Parked events that were not requeued.", known.dead_letters)

    def _journal(self) -> Iterator[Metric]:
        found = self.statistics
        yield _gauge("effectd_journal_bytes", "The journal's file.", found.bytes)
        yield _gauge("effectd_journal_wal_bytes", "Its write-ahead log.", found.wal_bytes)
        yield _gauge("effectd_journal_disk_free_bytes", "What is free on its disk.", found.free_bytes)
        yield _gauge("effectd_journal_last_seq", "The newest event.", found.last_seq)
        yield _gauge("effectd_journal_queue", "Units of work that wait.", found.waiting)
        yield _count("effectd_journal_commits", "Commits.", found.commits)
        yield _count("effectd_journal_events", "Events.", found.events)
        yield _count("effectd_journal_checkpoints", "Checkpoints.", found.checkpoints)
        fsyncs = found.commits + _FSYNCS_A_CHECKPOINT * found.checkpoints
        yield _count("effectd_journal_fsyncs", "One for each commit, two for each checkpoint.", fsyncs)
        yield _count("effectd_journal_lazy_errors", "Lazy writes that failed.", found.lazy_errors)

    def _daemon(self) -> Iterator[Metric]:
        now = self.moment
        states = {state: int(state == now.state) for state in STATES}
        yield _by("effectd_state", "1 for the state that the daemon is in.", "state", states)
        if now.connected is not None:
            yield _gauge("effectd_link_connected", "1 while the plane knows this daemon.", now.connected)
            yield _count("effectd_link_connections", "Times that the plane welcomed it.", now.connections)
        fence = {} if self.known.fence is None else {self.known.fence.reason: 1}
        yield _by("effectd_fence", "1 for the fence that stands.", "reason", fence)
        yield _counted("effectd_fences", "Fences.", "reason", self.tallies.fences)
        yield _count("effectd_log_lines_dropped", "Log lines that could not be written.", now.lines_dropped)

    def _gateway(self) -> Iterator[Metric]:
        found = self.moment.gateway
        if found is None:
            return
        yield _gauge("effectd_gateway_connections", "Agents' relays that are connected.", found.connections)
        yield _count("effectd_gateway_calls", "Calls of agents.", found.calls)
        yield _count("effectd_gateway_calls_attached", "Calls that found an equal one.", found.attached)
        yield _count("effectd_gateway_calls_refused", "Calls that executed nothing.", found.refused)
        yield _count("effectd_gateway_calls_replayed", "Answers from the journal.", found.replayed)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _count(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, _since(text), value=value)


def _by(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for word, value in sorted(values.items()):
        family.add_metric((word,), value)
    return family


def _counted(name: str, text: str, label: str, values: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, _since(text), labels=(label,))
    for word, value in sorted(values.items()):
        family.add_metric((word,), value)
    return family


def _since(text: str) -> str:
    return f"{text} Counted since the daemon's start."


def _age_s(at: Timestamp | None, now: datetime) -> float:
    return 0.0 if at is None else max((now - moment(at)).total_seconds(), 0.0)
