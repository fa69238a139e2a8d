"""The order in which operations come up to be looked at."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from driver.engine.agenda import Agenda
from store.records import OperationId

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)

steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove", "take"]),
        st.sampled_from("abcde"),
        st.integers(min_value=0, max_value=9),
    ),
    max_size=40,
)


@given(steps=steps)
def test_an_agenda_is_a_table_of_when_each_operation_is_due(steps: list[tuple[str, str, int]]) -> None:
    """Whatever was put, moved and taken off: what comes up is what is due for the longest time, once."""
    agenda, model = Agenda(), dict[OperationId, datetime]()
    for what, name, seconds in steps:
        operation_id, at = OperationId(name), NOW + timedelta(seconds=seconds)
        if what == "put":
            agenda.put(operation_id, at)
            model[operation_id] = at
        elif what == "remove":
            agenda.remove(operation_id)
            model.pop(operation_id, None)
        else:
            due = [item for item in model.items() if item[1] <= at]
            expected = min(due, key=lambda item: (item[1], item[0]))[0] if due else None
            assert agenda.take(at) == expected
            if expected is not None:
                del model[expected]
        assert len(agenda) == len(model)
        assert agenda.next_due() == min(model.values(), default=None)
