"""Does the journal hold what it says: schema, pages, chain, contents, receipts, counts, and every projection.

Part of `store`; imports its own modules. `verify_journal` asks a running journal, page by page between its
commits, without holding anybody up; `verify_file` looks at a journal that nobody has open, and can also
rebuild every projection from the events and compare (`deep`). What they look at stands in `store.checks`.
Nothing is changed by either. What is wrong is returned, never raised.
"""

from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

from store.apart import apart, pays
from store.checks import all_checks, bounded
from store.comparison import Comparison
from store.errors import DigestKeyMissing, DigestKeyWrong, NoJournal
from store.findings import Check, Finding, Progress, Report, unreadable
from store.folder import entered
from store.head import Head, Ledger, read_head
from store.identity import read_identity
from store.inspection import inspect
from store.journal import Journal
from store.keys import DigestKey, find_key
from store.rest import reading
from store.settings import JournalSettings
from store.view import View


def verify(view: View, progress: Report, *, deep: bool = False) -> tuple[Finding, ...]:
    """Return everything that is wrong with the journal that `view` sees. Takes as long as it takes.

    `deep` also rebuilds every projection from the events, in a temporary file, and compares.
    """
    with closing(Comparison(at_rest=True)) as comparison:
        return _look(view, progress, (*all_checks(), *((comparison,) if deep else ())))


def _look(view: View, progress: Report, checks: Sequence[Check]) -> tuple[Finding, ...]:
    findings: list[Finding] = []
    for check in checks:
        while (reached := _page(check, view, findings)) is not None:
            progress(reached)
        findings += check.findings
    return tuple(findings)


def _page(check: Check, view: View, findings: list[Finding]) -> Progress | None:
    try:
        return check.page(view)
    except Exception as error:  # noqa: BLE001 - what one check chokes on must not keep the others from looking
        findings.append(Finding(check=check.name, subject="journal", problem=unreadable(error)))
        return None


def look_deeply(path: Path, view: View, progress: Report) -> tuple[Finding, ...]:
    """Return what `verify` returns for the file at `path`: with two processors, where it pays."""
    if not pays(view.ledger.head):
        return verify(view, progress, deep=True)
    with apart(path) as other:
        findings = verify(view, progress)
        compared = other.wait(progress)
    if compared is None:
        with closing(Comparison(at_rest=True)) as comparison:
            compared = _look(view, progress, (comparison,))
    return findings + compared


async def verify_journal(journal: Journal, progress: Report, *, deep: bool = False) -> tuple[Finding, ...]:
    """Return everything that is wrong with a running journal, looked at in pages between its commits.

    `deep` as in `verify`. Nothing is pruned meanwhile. Raises `JournalFailed` where SQLite itself reports
    corruption: then the daemon stops anyway; and `ScratchFailed`.
    """
    findings: list[Finding] = []
    with closing(Comparison()) as comparison, journal.unpruned():
        for check in (*bounded(), *((comparison,) if deep else ())):
            while (reached := await journal.read(check.page)) is not None:
                progress(reached)
            findings += check.findings
    return tuple(findings)


def verify_file(
    settings: JournalSettings, progress: Report, *, now: datetime, deep: bool = False
) -> tuple[Finding, ...]:
    """Return everything that is wrong with the journal of a state folder that no daemon uses. Blocks.

    A journal that an earlier version left is looked at as the next start will have it. Raises `NoJournal`
    where there has never been one, an `OpenRefused` for what is no journal of this folder, or is in use, and
    `ScratchFailed`.
    """
    with entered(settings) as folder:
        identity = read_identity(folder.path)
        if identity is None or identity.journal is None:
            raise NoJournal(folder.path)
        path = identity.path(folder.path)
        head = inspect(path, identity, tail=False)
        key, lost = folder_key(folder.path, head)
        with reading(path) as connection:
            view = View(Ledger(connection, read_head(connection), key), now, has_room=lambda: False)
            return lost + (look_deeply(path, view, progress) if deep else verify(view, progress))


def folder_key(folder: Path, head: Head) -> tuple[DigestKey | None, tuple[Finding, ...]]:
    """Return the folder's key, or that it cannot be used: everything else can be looked at without it."""
    try:
        return find_key(folder, head.key_check), ()
    except (DigestKeyMissing, DigestKeyWrong) as error:
        return None, (Finding(check="key", subject=error.path.name, problem=error.problem),)
