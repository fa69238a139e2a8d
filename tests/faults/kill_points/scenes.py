"""The scenes that lives are killed in: an act, what it is configured with, and what it is about.

Part of `kill points`. A scene's act is asked of each life anew, whatever the one before has done of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.faults.kill_points import acts, tables
from tests.faults.kill_points.stage import Act, Stage, Tables
from tests.store.test_migrations import UNALLOWED

KNOWN: Final = frozenset(str(finding) for finding in UNALLOWED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One of them."""

    name: str
    act: Act
    tables: Tables
    before: Act | None = acts.a_journal
    """What is made before, once, with lives of its own; None: there is no journal yet."""
    retires: bool = False
    """Whether what is over may be forgotten: a redelivery is then answered that it was."""
    amiss: Callable[[Stage], Sequence[str]] = lambda _: ()
    """What else is wrong in the end."""
    known: frozenset[str] = frozenset()
    """What `verify` finds wrong with what was made before."""
    reached: tuple[str, ...] = ()
    """The kinds of events that it is about: each must have been seen."""


SCENES: Final = (
    Scene(
        name="calls",
        act=acts.calls,
        tables=tables.usual,
        before=None,
        reached=("operation.succeeded", "operation.failed", "operation.not_executed", "operation.annotated"),
    ),
    Scene(
        name="retries",
        act=acts.retries,
        tables=tables.usual,
        reached=("operation.attempt_ended", "operation.reconciled", "command.completed"),
    ),
    Scene(name="probes", act=acts.probes, tables=tables.usual, reached=("operation.probed",)),
    Scene(
        name="verdicts",
        act=acts.verdicts,
        tables=tables.blind,
        reached=("operation.reconciled", "command.failed"),
    ),
    Scene(
        name="approvals",
        act=acts.approvals,
        tables=lambda _, port: tables.shop(port, order={"approval": "required"}),
        reached=("operation.approval_requested", "operation.approval_decided"),
    ),
    Scene(
        name="cancels",
        act=acts.cancels,
        tables=tables.one_slot,
        reached=("operation.not_executed", "command.refused"),
    ),
    Scene(
        name="compensations",
        act=acts.compensations,
        tables=lambda _, port: {
            **tables.shop(port, order={"receipt": "result.json.id"}),
            "providers__shop__tools__order__compensate": {"tool": "slow"},
            "providers__shop__tools__order__compensate__arguments": {"of": "=receipt"},
        },
        reached=("operation.compensated",),
    ),
    Scene(name="delegation", act=acts.delegation, tables=tables.blind, reached=("operation.reconciled",)),
    Scene(
        name="erasure",
        act=acts.erasure,
        tables=tables.usual,
        before=acts.a_run_that_is_over,
        retires=True,
        reached=("retired",),
    ),
    Scene(
        name="retention",
        act=acts.retention,
        tables=tables.forgetful,
        before=acts.a_run_that_is_over,
        retires=True,
        reached=("retired",),
    ),
    Scene(name="programs", act=acts.programs, tables=tables.shell, reached=("program readopted",)),
    Scene(name="servers", act=acts.servers, tables=tables.as_it_is),
    Scene(name="servers far away", act=acts.servers_far_away, tables=tables.office),
    Scene(
        name="agents",
        act=acts.agents,
        tables=tables.with_gateway,
        amiss=acts.lies_to_agents,
        reached=("asked again through the gateway", "an agent heard: succeeded", "an agent heard: unknown"),
    ),
    Scene(name="triage", act=acts.triage, tables=tables.supervised, reached=("supervisor.verdict",)),
    Scene(name="dead letters", act=acts.dead_letters, tables=tables.usual, reached=("dead letter requeued",)),
    Scene(name="backup", act=acts.backup, tables=tables.usual, reached=("backup",), amiss=acts.bad_copies),
    Scene(
        name="rollback",
        act=acts.rollback,
        tables=tables.usual,
        before=acts.a_rollback,
        reached=("driver.unfenced", "fence lifted"),
    ),
    Scene(name="migration", act=acts.one_call, tables=tables.usual, before=acts.an_old_journal, known=KNOWN),
    Scene(name="new generation", act=acts.one_call, tables=tables.usual, before=acts.a_failed_fsync),
    Scene(name="intents that the plane holds", act=acts.calls, tables=tables.held),
)
BY_NAME: Final = {scene.name: scene for scene in SCENES}
