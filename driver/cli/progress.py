"""How far something is, where a person waits: a bar on standard error, and nothing elsewhere.

Part of `driver.cli`; imports rich and the replies.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from driver.cli.replies import VerifyProgress

Report = Callable[[VerifyProgress], None]


@contextmanager
def shown(what: str, *, quiet: bool) -> Generator[Report]:
    """Yield what shows progress of `what`, unless it is to be `quiet` or nobody looks."""
    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=screen, transient=True, disable=quiet or not screen.is_terminal) as bars:
        task = bars.add_task(what, total=None)
        yield lambda reached: bars.update(
            task, description=reached.check, completed=reached.done, total=reached.total
        )
