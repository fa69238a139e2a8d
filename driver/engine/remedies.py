"""What somebody may do now about an operation: the commands that would not be refused.

Part of `driver.engine`; imports `driver.core`, its own siblings and `store`. It asks what the commands
themselves ask, of the same journal, so that no advice is given that would be refused; between the advice and
the command something may still happen.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from driver.engine.verdicts import takes_verdict
from store.records import OperationRecord
from store.view import View

Check: TypeAlias = Callable[[View, OperationRecord], bool]
"""Whether a command about an operation would be taken now."""

ALWAYS: Final[Mapping[str, Check]] = {
    "reconcile": lambda _, record: takes_verdict(record),
    "override": lambda _, record: takes_verdict(record, override=True) and not takes_verdict(record),
    "annotate": lambda _, __: True,
}
"""What needs nothing but the journal. `override` is a verdict against an operator's."""


class Remedies:
    """The checks of one process life."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks: Final = {**ALWAYS, **checks}

    def allowed(self, view: View, record: OperationRecord) -> tuple[str, ...]:
        """Return the names of what would be taken."""
        return tuple(name for name, check in self._checks.items() if check(view, record))
