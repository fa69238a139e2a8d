"""What a start makes of what an earlier life left open."""

from datetime import timedelta
from pathlib import Path

import pytest

from driver.core.attempts import Phase
from store.lifecycle import State
from tests.driver.engine.rig import ScriptedProvider, call, engine, limits

pytestmark = pytest.mark.anyio


class Killed(BaseException):
    """Ends the engine where a kill would."""


async def test_what_started_without_an_outcome_is_unknown_and_never_sent_again(tmp_path: Path) -> None:
    """A restart calls no provider for it: somebody has to find out what happened."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider) as rig:
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
    async with engine(tmp_path, provider) as rig:
        lost = await rig.operation()
        await rig.intake.deliver([call()])
    assert (lost.state, lost.reason, lost.settled) == (State.UNKNOWN, "crash_window", False)
    assert len(provider.executed) == 1


async def test_what_was_accepted_only_runs_once_the_plane_has_confirmed_the_history(tmp_path: Path) -> None:
    """A restored snapshot must not act before it can be told that it is one."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, bounds=limits(inflight_max=1)) as rig:
        await rig.intake.deliver([call(), call("cmd-2", arguments={"n": 2})])
        await provider.arrived.wait()
    provider.held_at = None
    async with engine(tmp_path, provider, confirmed=False) as rig:
        assert (await rig.operation("cmd-2")).state is State.ACCEPTED
        assert len(provider.executed) == 1
        rig.desk.history_confirmed()
        assert (await rig.settled("cmd-2")).state is State.SUCCEEDED
    assert [item.arguments for item in provider.executed] == [{"n": 1}, {"n": 2}]


async def test_what_expired_meanwhile_is_not_executed_but_only_after_the_confirmation(tmp_path: Path) -> None:
    """Before it, another life of this journal may have executed it: `expired` could be a lie."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, bounds=limits(inflight_max=1)) as rig:
        await rig.intake.deliver([call(), call("cmd-2", arguments={"n": 2}, expires_in_ms=60_000)])
        await provider.arrived.wait()
    async with engine(tmp_path, provider, confirmed=False) as rig:
        rig.clock.ahead = timedelta(hours=1)
        rig.dispatcher.pump()
        assert (await rig.operation("cmd-2")).state is State.ACCEPTED
        rig.desk.history_confirmed()
        ended = await rig.settled("cmd-2")
    assert (ended.state, ended.reason) == (State.NOT_EXECUTED, "expired")
    assert len(provider.executed) == 1


async def test_a_crash_during_recovery_ends_in_the_same_state(tmp_path: Path) -> None:
    """Whatever page of the recovery was committed, the next start decides the rest the same way."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, bounds=limits(inflight_max=3)) as rig:
        await rig.intake.deliver([call(f"cmd-{n}", arguments={"n": n}) for n in range(5)])
        await provider.arrived.wait()

    def die(name: str) -> None:
        if name == "recovery.page":
            raise Killed

    with pytest.raises(Killed):
        async with engine(tmp_path, provider, boundary=die):
            pass
    async with engine(tmp_path, provider, confirmed=False) as rig:
        states = [(await rig.operation(f"cmd-{n}")).state for n in range(5)]
        kinds = await rig.kinds()
    assert states == [State.UNKNOWN] * 3 + [State.ACCEPTED] * 2
    assert kinds.count("operation.unknown") == 3


async def test_a_crash_loop_says_what_it_is_once(tmp_path: Path) -> None:
    """Equal news of the daemon about itself is not recorded again while nothing else happens."""
    provider = ScriptedProvider(held_at=Phase.WRITTEN)
    async with engine(tmp_path, provider, bounds=limits(inflight_max=1)) as rig:
        await rig.intake.deliver([call(), call("cmd-2", arguments={"n": 2})])
        await provider.arrived.wait()
    for _ in range(3):
        async with engine(tmp_path, provider, confirmed=False):
            pass
    async with engine(tmp_path, provider, confirmed=False) as rig:
        found = await rig.journal.read(lambda view: view.events(0, 100, 1_000_000))
        # the first start found one lost and one waiting, every later one only the one that waits
        assert [event.kind for event in found].count("driver.recovered") == 2
