"""Where lives are killed, in which order, and that what is wrong afterwards is seen."""

import random
from collections import Counter

import pytest

from tests.faults.kill_points.blows import FileBlow, NamedBlow, Points, Striker, kind_of, parse
from tests.faults.kill_points.truth import audit
from tests.faults.lane import CONTRADICTING_RECEIPTS, DUPLICATE_EFFECTS, LOST_RECEIPTS
from tests.faults.notifier import KILL, Call
from tests.system.audit import key_of
from tests.system.plane import Order, ScriptedPlane, call

POINTS = Points(calls=Counter(pwrite64=200, unlink=3), boundaries=Counter({"link.sent": 4}))


def test_every_place_is_aimed_at_once_and_the_rare_ones_early() -> None:
    """A run that ends before it has fired at all of them has seen every kind."""
    order = POINTS.in_order(random.Random(1))
    assert sorted(map(str, order)) == sorted(map(str, POINTS.blows()))
    assert len(order) == 207
    kinds = list(map(kind_of, order))
    assert kinds[:60].count("unlink") + kinds[:60].count("link.sent") == 7


def test_a_seed_gives_the_same_order() -> None:
    """What was found can be found again."""
    assert POINTS.in_order(random.Random(7)) == POINTS.in_order(random.Random(7))


@pytest.mark.parametrize("blow", POINTS.blows()[::50])
def test_a_blow_is_written_as_it_is_read(blow: FileBlow | NamedBlow) -> None:
    """A report names a battle so that it can be fought again."""
    assert parse(str(blow)) == blow


@pytest.mark.parametrize("text", ["", "pwrite64", "nothing:1", "link.sent:x"])
def test_what_is_no_blow_is_refused(text: str) -> None:
    """A typo must not look like a battle that found nothing."""
    with pytest.raises(ValueError, match=r".+"):
        parse(text)


def test_the_striker_kills_at_the_call_and_at_no_other() -> None:
    """The N-th of its kind; calls of other kinds do not count."""
    strike = Striker(FileBlow(call="unlink", number=2))
    said = [strike(Call(name=name, path="state/x")) for name in ("unlink", "fsync", "unlink", "unlink")]
    assert said == [0, 0, KILL, 0]


def test_what_is_wrong_is_counted_by_its_measure() -> None:
    """An effect that happened twice, a command without a receipt, a receipt that lies."""
    plane = ScriptedPlane()
    for name in ("twice", "silent"):
        plane.orders[name] = Order(command=call(name))
    effects = Counter({key_of(plane.orders["twice"].command): 2})
    found = Counter(broken.measure for broken in audit(plane, effects))
    assert found[DUPLICATE_EFFECTS] == 1
    assert found[LOST_RECEIPTS] == 2
    plane.violations.append("other bytes")
    assert CONTRADICTING_RECEIPTS in {broken.measure for broken in audit(plane, Counter())}
