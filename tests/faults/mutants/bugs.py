"""Bugs that somebody could write into the product, each as a block in which the product has it.

Only for a process that is killed afterwards: what a bug leaves behind stays with the process.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from anyio import CancelScope

from driver.core.approval import Ask, Use, UseFacts
from driver.core.canonical import canonical
from driver.core.identity import Digester, sha256
from driver.link.outbox import Item, Outbox
from store.errors import JournalBusy
from store.lifecycle import Evidence, Judgement, judge
from store.records import AttemptRecord, Digest, EvidenceRecord, JsonObject
from tests.faults.simulation.controls import swapped

_AT: Final = re.compile(rb'"at":"[^"]*"')
_DIGESTING: Final = ("driver.engine.offers", "driver.engine.compensating", "driver.engine.withheld")


def best_effort_retry() -> AbstractContextManager[None]:
    """Count what a supervisor guessed among what proves that nothing happened."""

    def proof(
        evidence: Iterable[EvidenceRecord], attempts: Sequence[AttemptRecord], *, since_seq: int = 0
    ) -> Judgement:
        del since_seq
        return judge([Evidence(item.attempt, item.effect, item.source) for item in evidence], len(attempts))

    return swapped(import_module("driver.engine.proof"), "proof", proof)


def resent_anew() -> AbstractContextManager[None]:
    """Render an event that is sent again with the time of the sending."""
    sent: set[tuple[str, int]] = set()
    original = Outbox.put

    def put(self: Outbox, item: Item) -> bool:
        if isinstance(item, bytes) and item.startswith(b'{"type":"event"'):
            event: dict[str, Any] = json.loads(item)
            name = str(event["journal_id"]), int(event["seq"])
            if name in sent:
                now = f'"at":"{asyncio.get_running_loop().time():.6f}"'.encode("ascii")
                item = _AT.sub(now, item, count=1)
            sent.add(name)
        return original(self, item)

    return swapped(Outbox, "put", put)


def approval_reused() -> AbstractContextManager[None]:
    """Use a grant wherever there is one, whoever heard it, and whether it was used or not."""

    def look(facts: UseFacts) -> Use | Ask:
        newest = facts.newest
        granted = newest is not None and newest.decision == "grant"
        return Use(newest.approval_id) if newest is not None and granted else Ask()

    return swapped(import_module("driver.engine.steps"), "look", look)


def unshielded() -> AbstractContextManager[None]:
    """Let whoever cancels the daemon cancel the journal's owner in the middle of its work, too."""

    def scope(*, shield: bool) -> CancelScope:
        del shield
        return CancelScope()

    return swapped(import_module("store.journal"), "CancelScope", scope)


def lock_by_unlink() -> AbstractContextManager[None]:
    """Lock by making a file that was not there, and take one whose owner is dead for nobody's."""

    def lock(path: Path) -> int:
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            except FileExistsError:
                if _lives(path):
                    raise JournalBusy(path.parent, pid=None) from None
                time.sleep(0)
                path.unlink(missing_ok=True)
                continue
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
            return descriptor

    return swapped(import_module("store.folder"), "_lock", lock)


def _lives(path: Path) -> bool:
    try:
        os.kill(int(path.read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


@contextmanager
def _digest_of(digested: Any) -> Any:  # noqa: ANN401 - a function in the place of another
    with ExitStack() as stack:
        for name in _DIGESTING:
            stack.enter_context(swapped(import_module(name), "args_digest", digested))
        yield


def toolless_digest() -> AbstractContextManager[None]:
    """Leave the tool out of what makes two calls the same."""

    def args_digest(tool: str, arguments: JsonObject, digest: Digester = sha256) -> Digest:
        del tool
        return digest(canonical(arguments))

    return _digest_of(args_digest)
