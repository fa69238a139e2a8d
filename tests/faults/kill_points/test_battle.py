"""One battle, with a blow at a file, one at a boundary, and a mechanism taken away."""

from collections.abc import Iterator

import anyio
import pytest

from tests.faults import notifier
from tests.faults.kill_points.battle import SECOND_CRASH, Tally, Weakness, fight, prepare
from tests.faults.kill_points.blows import FileBlow, NamedBlow, parse
from tests.faults.kill_points.scenes import BY_NAME
from tests.faults.kill_points.stage import KILLED, stage
from tests.faults.kill_points.truth import OTHER
from tests.faults.kill_points.worker import CONTROLS, Control
from tests.faults.lane import DUPLICATE_EFFECTS, HANGS
from tests.system.sandbox import Gone
from tests.system.zygote import Zygote

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(notifier.lacking() is not None, reason=str(notifier.lacking())),
]


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    """The warm process that the lives are forked from."""
    warm = Zygote()
    yield warm
    warm.close()


async def test_a_killed_life_is_seen_and_its_weakness_too(zygote: Zygote) -> None:
    """Both blows fire, and all holds; without the intent, the same kill makes an effect happen twice."""
    ready = await prepare(zygote, BY_NAME["calls"])
    assert ready.points.calls["pwrite64"] > 0
    assert ready.points.boundaries["dispatch.answered"] == 3
    blows = (NamedBlow(boundary="dispatch.answered", passing=1), FileBlow(call="pwrite64", number=2))
    tally = await fight(zygote, ready, blows, strictly=True)
    assert tally.broken == []
    assert tally.fired == {"dispatch.answered": 1, "pwrite64": 1}
    assert tally.reached[SECOND_CRASH] == 1
    assert tally.lives == 3
    weak = Weakness(patch="no_intent_commit", life=0)
    assert (await fight(zygote, ready, [parse("dispatch.answered:1")], weakness=weak)).figures[
        DUPLICATE_EFFECTS
    ]


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
async def test_a_weakness_is_noticed_by_what_it_does(control: Control) -> None:
    """A life that hangs, or falls over, because its weakness cannot be had any more has shown nothing."""
    hung = Tally(broken=["nothing for 3 s"])
    hung.figures.update({HANGS: 1, OTHER: 1})
    assert control.noticed(hung) == []
    hung.figures[control.measure] += 1
    assert control.noticed(hung) == hung.broken


async def test_a_life_that_dies_before_it_is_ready_says_nothing_more(zygote: Zygote) -> None:
    """It can die before it has become ready: whoever waits for that is left waiting."""
    ready = await prepare(zygote, BY_NAME["agents"])
    async with stage(zygote, ready.scene.tables) as here:
        here.take(ready.template)
        life = here.made.start(kill_at="recovery.after:1")
        await life.ended.wait()
        assert life.code == KILLED
        assert "READY=1" not in life.states
        with pytest.raises(Gone):
            await life.ready()
        with anyio.move_on_after(0.1) as waited:
            await ready.scene.act(here)
        assert waited.cancelled_caught
