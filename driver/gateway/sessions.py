"""Sessions over HTTP: whose run continues which, and with whom somebody is in the middle of a request.

Part of `driver.gateway`; imports its siblings. Sessions end with the daemon, and a client that comes back has
a new one: its run continues what those of the same client left open, as that of a relay does for a folder.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import Final, Protocol

from driver.core.commands import RESUMES_MAX
from driver.gateway.predecessors import TooManyOpen
from store.records import RunId

KNOWN_MAX: Final = 1_024
"""Sessions of which it is remembered what they continue; for others it is found out once more."""

Find = Callable[[str, Callable[[RunId], bool]], Awaitable[tuple[RunId, ...]]]
"""Returns the runs that were left open, of those that begin so, and for which nobody speaks."""


class Connected(Protocol):
    """A connection that a client may have left."""

    def is_there(self) -> bool:
        """Whether the client has not hung up."""
        ...


class Sessions:
    """What is known of sessions over HTTP. `find` looks for runs that were left open."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._continued: OrderedDict[RunId, tuple[RunId, ...]] = OrderedDict()
        self._here: dict[str, list[Connected]] = {}

    @contextmanager
    def attended(self, session: str | None, connection: Connected) -> Generator[None]:
        """Note that a request of a session is under way; its end ends that."""
        if session is None:
            yield
            return
        self._here.setdefault(session, []).append(connection)
        try:
            yield
        finally:
            self._here[session].remove(connection)
            if not self._here[session]:
                del self._here[session]

    async def continued(self, session: str, client: str, named: tuple[RunId, ...]) -> tuple[RunId, ...]:
        """Return the runs that a session's own run continues, beside those that it `named`.

        They are those that `client` left open, as its first call found them. Raises `TooManyOpen`.
        """
        run_id = run_of(session, client)
        found = self._continued.get(run_id)
        if found is None:
            prefix = _prefix(client)
            left = await self._find(prefix, partial(self._is_taken, prefix, session))
            found = self._continued.setdefault(run_id, left)
            while len(self._continued) > KNOWN_MAX:
                self._continued.popitem(last=False)
        runs = tuple(dict.fromkeys((*named, *found)))
        if len(runs) > RESUMES_MAX:
            raise TooManyOpen(len(runs))
        return runs

    def _is_taken(self, prefix: str, session: str, run_id: RunId) -> bool:
        """Whether a run is that of a session itself, or of one whose client is in the middle of a request.

        Of a client that died, its sessions stay: what says that it lives is a connection, such as the one on
        which it listens.
        """
        other = run_id.removeprefix(prefix)
        return other == session or any(one.is_there() for one in self._here.get(other, ()))


def run_of(session: str, client: str) -> RunId:
    """Return the run of a session that names none."""
    return RunId(_prefix(client) + session)


def client_digest(client: str) -> str:
    """Return what names a client in the names of its runs, the same after any restart."""
    return sha256(client.encode(errors="surrogatepass")).hexdigest()


def _prefix(client: str) -> str:
    return f"http-{client_digest(client)[:12]}-"
