"""The connection to an HTTP API, cut at every byte of a request and of its answer. Part of `network`.

The API counts what it was asked for whole, so that it is known what has really happened. What the provider
says of a call must be true of it, whichever byte was the last:

* that it was not sent, only where not one byte has left the daemon;
* that it was answered, only where the answer came whole;
* everything else is silence; and no request is ever sent twice.

On a new connection, and on one that has carried a call before.
"""

from time import monotonic
from typing import Final

import anyio

from driver.core.attempts import Answered, NotSent, Report
from driver.core.contracts import parse_key_carrier
from driver.providers.http.exchange import Exchange
from tests.driver.providers.http.site import Site, http, says, site
from tests.driver.providers.http.stage import Stage, endpoint, settings, staged
from tests.faults.balance import Balance
from tests.faults.lane import BROKEN_MAX, DUPLICATE_EFFECTS
from tests.faults.network.cutter import KINDS, SIDES, Cut, Cutter, Kind, Side, cutter

CONTROL_S: Final = 120.0
ANSWER: Final = b'{"id": 7, "name": "a thing that was made"}'
KEY: Final = "header:Idempotency-Key"


async def every_byte(tally: Balance, until: float) -> None:
    """Cut at each byte, in each direction, by each kind, on a new connection and on a used one."""
    for used in (False, True):
        for towards in SIDES:
            for kind in KINDS:
                await _bytes(tally, until, used=used, towards=towards, kind=kind)


async def _bytes(tally: Balance, until: float, *, used: bool, towards: Side, kind: Kind) -> None:
    async with site(says(http(201, ANSWER))) as api:
        with cutter(Cutter(("127.0.0.1", api.port))) as made:
            url = f"http://127.0.0.1:{made.port}"
            wanted = settings(url, {"act": endpoint()}, key=parse_key_carrier(KEY))
            async with staged(wanted) as stage:
                after = 0
                while monotonic() < until and len(tally.broken) < BROKEN_MAX:
                    cut = Cut(after=after, towards=towards, kind=kind)
                    fired = await _one(tally, api, made, stage, cut, used=used)
                    if not fired:
                        tally.reached["every byte of an HTTP call"] += after
                        return
                    after += 1


async def _one(tally: Balance, api: Site, made: Cutter, stage: Stage, cut: Cut, *, used: bool) -> bool:
    """Cut one call; return whether the cut happened."""
    if used:
        made.plan()
        before = await stage.run()
        assert isinstance(before, Answered), before
        made.plan(now=cut)
    else:
        made.end_all()
        made.plan(cut)
    api.requests.clear()
    began = monotonic()
    report = await stage.run()
    tally.took(began)
    fired = bool(made.fired)
    tally.tried += fired
    if fired:
        # a request that came whole is read before its connection ends
        await api.until(lambda site: site.gone == site.connections)
    tally.figures[DUPLICATE_EFFECTS] += max(len(api.requests) - 1, 0)
    wrong = _wrong(report, len(api.requests), made.heard, fired=fired)
    tally.fired["HTTP: " + cut.kind] += fired
    tally.reached[f"HTTP: {type(report).__name__.lower()}"] += 1
    tally.reached["HTTP: silence about what had happened"] += bool(api.requests) and fired
    if wrong:
        tally.broken.append(f"HTTP, {'used' if used else 'new'} connection, {cut}: {wrong}: {report}")
    return fired


def control() -> Balance:
    """Do the same to a provider for which a lost connection is a call never sent: it must be noticed.

    The process is spoilt afterwards.
    """

    def never_sent(self: Exchange, error: Exception) -> NotSent:
        del self
        return NotSent(reason="connect_failed", message=str(error))

    Exchange._failed = never_sent  # type: ignore[method-assign]
    tally = Balance()
    anyio.run(every_byte, tally, monotonic() + CONTROL_S)
    return tally


def _wrong(report: Report, requests: int, heard: int, *, fired: bool) -> str | None:
    """Say what is not true of a call that was reported so, of which the API has got so many requests."""
    if requests > 1:
        return f"the request came {requests} times"
    if isinstance(report, NotSent) and heard:
        return f"not sent, and {heard} bytes have left"
    if isinstance(report, Answered) and (fired or not requests):
        return "answered, and the answer did not come whole"
    if not fired and not isinstance(report, Answered):
        return "nothing was cut, and there is no answer"
    return None
