"""A journal's projections beside what its events make of them."""

from contextlib import closing

from store.comparison import Comparison
from store.view import View


def differences(view: View) -> tuple[tuple[str, str], ...]:
    """Return where and what for each row that is not what the events make of it, and for the counts."""
    with closing(Comparison()) as comparison:
        while comparison.page(view) is not None:
            pass
    return tuple((finding.subject, finding.problem) for finding in comparison.findings)
