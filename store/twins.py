"""Equal writes: of the same tool with the same arguments, in the same runs; whoever resends looks like them.

Part of `store`; imports its own modules. Definition: docs/protocol.md, look-alikes.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from store.head import Ledger
from store.located import Row, operation_row
from store.records import Digest, OperationRecord, RunId, Twin
from store.rows import pruned_twin_row

TWINS_MAX: Final = 64


def twins(ledger: Ledger, runs: Sequence[RunId], args_digests: Sequence[Digest]) -> tuple[Twin, ...]:
    """Return the writes with one of these digests in these runs, at most `TWINS_MAX`.

    Those that guard come first, and those that were pruned last; each part is newest first.
    """
    if not any(_has_alike(ledger, run_id, args_digests) for run_id in runs):
        return ()
    guarding = _operations(ledger, "twins_guarding", runs, args_digests)
    others = _operations(ledger, "twins_alike", runs, args_digests)
    pruned = [pruned_twin_row(row) for row in _alike(ledger, "tombstones_alike", runs, args_digests)]
    found: list[Twin] = [*guarding, *others, *pruned]
    return tuple(sorted(found, key=lambda twin: not twin.guards)[:TWINS_MAX])


def _has_alike(ledger: Ledger, run_id: RunId, args_digests: Sequence[Digest]) -> bool:
    """Whether there is anything to find in a run: there hardly ever is."""
    run = ledger.run(run_id)
    return run is not None and any(ledger.has_alike(run.id, args_digest) for args_digest in args_digests)


def _operations(
    ledger: Ledger, statement: str, runs: Sequence[RunId], args_digests: Sequence[Digest]
) -> list[OperationRecord]:
    found = map(operation_row, _alike(ledger, statement, runs, args_digests))
    return [row.record for row in sorted(found, key=lambda row: row.id, reverse=True)]


def _alike(
    ledger: Ledger, statement: str, runs: Sequence[RunId], args_digests: Sequence[Digest]
) -> Iterator[Row]:
    for run_id in dict.fromkeys(runs):
        for args_digest in dict.fromkeys(args_digests):
            named: dict[str, object] = {"run_id": run_id, "args_digest": args_digest, "limit": TWINS_MAX}
            yield from ledger.execute(statement, named)
