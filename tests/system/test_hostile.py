"""I1 to I4 under hostile servers: every way to misbehave, with every kill on top, at several moments.

0 effects twice, one honest receipt for each command, the same bytes when it is delivered again, and no hang:
the rows of docs/configuration.md, through the real daemon.
"""

from functools import partial

import anyio
import pytest

from tests.system.hostility import DOUBLING, RETRIED_CASES, TRIED_AGAIN
from tests.system.hostility_http import RETRIED_HTTP_CASES
from tests.system.siege import CASES, Toll, siege
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill, pytest.mark.lane]

KILLS = ("nothing", "server", "daemon", "both")


async def test_hostile_servers_and_no_kill(zygote: Zygote, toll: Toll) -> None:
    """Each case ends as its row says; late answers settle theirs; all providers go on; the stop is clean."""
    async with siege(zygote, toll) as besieged:
        late = {case.name for case in CASES if case.answers_late}
        await besieged.plane.until(lambda: set(besieged.late()) >= late)
        assert besieged.late() == {
            "late": "occurred",
            "late-error": "unknown",
            "garbage": "occurred",
            "task-late": "occurred",
            "http-late": "occurred",
        }
        await besieged.end("nothing", politely=True)


@pytest.mark.parametrize("delay_s", [0, 0.05])
async def test_hostile_servers_that_are_killed(zygote: Zygote, toll: Toll, delay_s: float) -> None:
    """A server that dies on top of it makes its outcome unknown at worst, and the next one serves."""
    async with siege(zygote, toll) as besieged:
        await besieged.servers_once(besieged.started, delay_s)
        await besieged.end("server", politely=False)


async def test_hostile_servers_of_a_daemon_that_is_killed(zygote: Zygote, toll: Toll) -> None:
    """Whatever they were doing when it died, the next life calls none of them twice."""

    async def at_boundary(boundary: str) -> None:
        async with siege(zygote, toll, boundary) as besieged:
            await besieged.life.exit_code()
            toll.daemons_killed += 1
            await besieged.next_life()
            await besieged.end("daemon", politely=False)

    async def in_the_middle(share: float) -> None:
        async with siege(zygote, toll) as besieged:
            await besieged.begun_are(share)
            await besieged.daemon()
            await besieged.next_life()
            await besieged.end("daemon", politely=False)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(at_boundary, "dispatch.answered:5")
        tasks.start_soon(in_the_middle, 0.5)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(at_boundary, "dispatch.outcome_committed:10")
        tasks.start_soon(in_the_middle, 0.9)


async def test_hostile_servers_that_are_killed_with_their_daemon(zygote: Zygote, toll: Toll) -> None:
    """Both die, in either order."""

    async def one(share: float, *, servers_first: bool) -> None:
        async with siege(zygote, toll) as besieged:
            await besieged.begun_are(share)
            if not servers_first:
                await besieged.daemon()
            for case in CASES:
                besieged.server(case.name)
            if servers_first:
                await besieged.daemon()
            await besieged.next_life()
            await besieged.end("both", politely=False)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(one, 0.4, servers_first=False))
        tasks.start_soon(partial(one, 0.7, servers_first=True))


@pytest.mark.parametrize("kind", KILLS)
async def test_what_is_called_again_has_one_effect(zygote: Zygote, kind: str) -> None:
    """Where the server deduplicates: a lost answer is had with the same key, whoever is killed meanwhile."""
    toll = Toll()
    cases = (*RETRIED_CASES, *(RETRIED_HTTP_CASES if kind in ("nothing", "daemon") else ()))
    async with siege(zygote, toll, cases=cases) as besieged:
        if kind == "server":
            await besieged.servers_once(besieged.started, 0.05)
        if kind in ("daemon", "both"):
            await besieged.begun_are(0.6)
            await besieged.daemon()
        if kind == "both":
            for case in cases:
                besieged.server(case.name)
        if kind in ("daemon", "both"):
            await besieged.next_life()
        await besieged.end(kind, politely=kind == "nothing")
        attempts = {case.name: besieged.attempts(case.name) for case in cases}
    assert toll.twice == 0
    assert {name for name, count in attempts.items() if count > 1} >= TRIED_AGAIN


async def test_a_server_that_does_not_deduplicate_is_found_out(zygote: Zygote) -> None:
    """Control: a contract that promises what the server does not do costs an effect for each attempt."""
    async with siege(zygote, Toll(), cases=DOUBLING) as besieged:
        with pytest.raises(AssertionError, match="again-dies-after was executed 5 times"):
            await besieged.end("nothing", politely=True)


async def test_a_client_that_takes_any_answer_for_its_own_is_found_out(zygote: Zygote) -> None:
    """Control: with the look at an answer's id taken away, a siege reports the success that is made up."""
    wrong = [case for case in CASES if case.name == "wrong-id"]
    async with siege(zygote, Toll(), cases=wrong, patch="any_answer_will_do") as besieged:
        with pytest.raises(AssertionError, match=r"^wrong-id, nothing: operation\.succeeded"):
            await besieged.end("nothing", politely=True)


def test_every_case_met_every_kill(toll: Toll) -> None:
    """The matrix is whole, and what it is about was seen."""
    if {kind for _, kind in toll.cells} != set(KILLS):
        pytest.skip("only with every test of this module")
    assert toll.cells == {(case.name, kind) for case in CASES for kind in KILLS}
    assert toll.twice == 0
    assert toll.servers_killed > len(CASES)
    assert len(toll.crashed_in) > len(CASES) // 2
    assert toll.receipts["operation.unknown/connection_lost"] > len(CASES) // 2
    assert toll.late >= 3
