"""A look at a journal that nobody has open: the same questions, of the file alone.

Part of `store`; imports its own modules. Blocks: call it in a worker thread, or where nothing else runs.
"""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime

from store.folder import entered
from store.head import Ledger, read_head
from store.identity import read_identity
from store.inspection import inspect, looking
from store.settings import JournalSettings
from store.view import View


@contextmanager
def at_rest(settings: JournalSettings, *, now: datetime) -> Generator[View | None]:
    """Yield a view of the journal of a state folder that no daemon uses, under its lock; None: it has none.

    Nothing in the file is changed. Raises an `OpenRefused` for what is no journal of this folder, or is in
    use.
    """
    with entered(settings) as folder:
        identity = read_identity(folder.path)
        if identity is None or identity.journal is None:
            yield None
            return
        path = identity.path(folder.path)
        inspect(path, identity)
        with looking(path) as connection:
            yield View(Ledger(connection, read_head(connection), None), now, has_room=lambda: False)
