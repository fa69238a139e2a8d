"""JSON values for property tests, as Hypothesis strategies."""

from hypothesis import strategies as st

from store.records import JsonObject, JsonValue

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers() | st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | texts
values: st.SearchStrategy[JsonValue] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
objects: st.SearchStrategy[JsonObject] = st.dictionaries(texts, values, max_size=5)
