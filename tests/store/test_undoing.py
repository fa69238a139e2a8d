"""What a unit changed is taken out, and put back, whole."""

from store.undoing import Undo


def test_what_is_taken_out_leaves_everything_as_it_was() -> None:
    """Lists have their old length, keys their old values, and new keys are gone."""
    items, kept = [1], {"a": 1}
    undo = Undo((items,))
    undo.begin()
    undo.set(kept, "a", 2)
    undo.set(kept, "b", 3)
    undo.set(kept, "a", 4)
    items.append(2)
    assert undo.has_any
    undo.take_out()
    assert (items, kept) == ([1], {"a": 1})
    assert not undo.has_any


def test_what_is_put_back_is_what_was_taken_out() -> None:
    """Over what was there before the unit, which may have gone meanwhile."""
    items, kept = [1], {"a": 1}
    undo = Undo((items,))
    undo.begin()
    undo.set(kept, "a", 2)
    undo.set(kept, "b", 3)
    items.append(2)
    taken = undo.take_out()
    items.clear()
    kept.clear()
    undo.put_back(taken)
    assert (items, kept) == ([2], {"a": 2, "b": 3})


def test_outside_a_unit_nothing_is_remembered() -> None:
    """What was set then stays."""
    kept: dict[object, object] = {}
    undo = Undo(())
    undo.set(kept, "a", 1)
    undo.begin()
    undo.take_out()
    assert kept == {"a": 1}


def test_what_was_written_out_is_not_taken_out_any_more() -> None:
    """The lists are empty then, and what the unit adds from there on is all that is taken out."""
    items = [1]
    undo = Undo((items,))
    undo.begin()
    items.append(2)
    items.clear()
    undo.forget()
    items.append(3)
    assert undo.take_out().tails == [[3]]
    assert items == []
