"""Names in the paths of our HTTP APIs.

Part of `driver.cli`; imports click.
"""

from urllib.parse import quote

import click


class EmptyId(click.UsageError):
    """An ID was given, and there is nothing in it: as of a shell's variable that is not set."""

    def __init__(self) -> None:
        super().__init__("an ID is empty: 'effectd ops' and 'effectd runs' list what there is")


def segment(name: str) -> str:
    """Return `name` as one segment of a path, whatever it is. Raises `EmptyId` where it is empty.

    Dots are escaped, too: a run may be called `..`, which an HTTP client would take for a way up.
    """
    if not name:
        raise EmptyId
    return quote(name, safe="").replace(".", "%2E")
