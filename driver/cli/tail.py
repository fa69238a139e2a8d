"""`effectd tail`: the journal's events, as they were and as they come.

Part of `driver.cli`.

The cursor of a follower is the last `seq` that it wrote: when the daemon restarts, it waits for it and goes
on behind that event, so nothing is missed and nothing shown twice. A journal with another id (an accepted
rollback, another state folder) has a history of its own, which is shown from its beginning.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from driver.cli import doors, views
from driver.cli.client import LocalClient, Parameters, Refused, Stopping, Unreachable
from driver.cli.options import config_option, json_option
from driver.cli.output import show
from driver.cli.replies import Event, Status
from driver.local.errors import Code

LAST: Final = 100
"""Events shown where nothing says from where."""

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 2.0
"""Between attempts to reach a daemon that restarts: nothing tells us when its socket is there."""

AWAY: Final = (Unreachable, Stopping)
"""What a daemon that restarts looks like from here."""


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, across restarts of the daemon.")
@click.option(
    "--after", type=click.IntRange(min=0), metavar="SEQ", help=f"Begin behind this event, not {LAST} back."
)
@config_option
@json_option
def tail(config_file: Path, *, as_json: bool, follow: bool, after: int | None) -> None:
    """Show the journal's events, one line each; with --json, one JSON object each, as they go over the wire.

    A SEQ counts in the journal's present history, which begins anew with an accepted rollback and a restored
    backup. Ctrl-C ends --follow, with exit code 0.
    """
    with doors.inspect(config_file) as client:
        reader = _Reader(client, as_json=as_json)
        reader.begin(after)
        try:
            if follow:
                reader.follow()
            else:
                reader.read(follow=False)
        except KeyboardInterrupt:
            return


class NotInThisHistory(click.ClickException):
    """The journal has not got that far: the cursor is of another history, or a mistake."""

    def __init__(self, after: int, status: Status) -> None:
        super().__init__(
            f"There is no event {after}: this journal's history ({status.journal_id}) goes up to "
            f"{status.last_seq}. If the number is from before a rollback or a restored backup, begin with "
            "--after 0."
        )


class _Reader:
    """Writes events, and knows up to where it has."""

    def __init__(self, client: LocalClient, *, as_json: bool) -> None:
        self._client = client
        self._as_json = as_json
        self._cursor = 0
        self._journal_id = ""

    def begin(self, after: int | None) -> None:
        """Begin behind `after`, or `LAST` events from the end."""
        status = self._client.read(Status, "/v1/status")
        self._journal_id = status.journal_id
        if after is not None and after > status.last_seq:
            raise NotInThisHistory(after, status)
        self._cursor = max(0, status.last_seq - LAST) if after is None else after

    def read(self, *, follow: bool) -> None:
        """Write events until the stream ends. Raises `Unreachable` when it breaks."""
        cursor: Parameters = {"after": self._cursor, "follow": follow, "journal_id": self._journal_id}
        for text in self._client.lines("GET", "/v1/events", cursor, patient=follow):
            event = self._client.parse(Event, text)
            if self._as_json:
                click.echo(text)
            else:
                show([views.event_line(event)])
            # another history may begin in the middle of a stream
            self._journal_id, self._cursor = event.journal_id, event.seq

    def follow(self) -> None:
        """Write events for ever: a stream that ends, or breaks, is taken up again behind the last one."""
        while True:
            try:
                self.read(follow=True)
            except AWAY:
                pass  # said below, whether it broke or ended
            except Refused as refused:
                if refused.problem.code != Code.HISTORY_CHANGED:
                    raise
            self._wait_for_daemon()

    def _wait_for_daemon(self) -> None:
        time.sleep(RETRY_FIRST_S)  # one that stops may still answer, and end each stream at once
        waiting = False
        for delay_s in _delays():
            try:
                status = self._client.read(Status, "/v1/status")
            except AWAY as error:
                if not waiting:
                    click.echo(f"The daemon went away; waiting for it. {error.format_message()}", err=True)
                waiting = True
                time.sleep(delay_s)
                continue
            if waiting:
                click.echo(f"The daemon is back; going on behind event {self._cursor}.", err=True)
            self._take_up(status)
            return

    def _take_up(self, status: Status) -> None:
        if status.journal_id != self._journal_id:
            click.echo(f"Another journal ({status.journal_id}): from its beginning.", err=True)
            self._journal_id = status.journal_id
            self._cursor = 0


def _delays() -> Iterator[float]:
    delay_s = RETRY_FIRST_S
    while True:
        yield delay_s
        delay_s = min(delay_s * 2, RETRY_MAX_S)
