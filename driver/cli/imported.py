"""What `effectd init` has done, for a person: what came of each server, and what to do next.

Part of `driver.cli`, pure: imports rich's values and what the import planned.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from driver.cli.plain import plain
from driver.cli.remarks import BY_HAND, paragraph, remark
from driver.importing.planning import Plan, Planned
from driver.importing.proposing import Proposals
from driver.importing.rendering import Answer

_FATES: Final = {
    "disabled": ("switched off", "dim"),
    "own": ("passed over", "dim"),
    "left_out": ("left out", "yellow"),
}

_RUN: Final = (
    "Each window of the client is a run of its own, and goes on with what an earlier one from the same "
    "folder left open: a call that may have happened is not made twice."
)
_NAMED: Final = (
    "--run names one piece of work, of one window at a time. Change it for the next piece, in which an equal "
    "call is a new one."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A configuration that was written; `answers` are those of the servers that were asked."""

    config: Path
    secrets: Path
    plan: Plan
    answers: Mapping[str, Answer]
    block: str
    run_id: str | None

    @property
    def whole(self) -> bool:
        """Whether every server that is switched on was taken over, and answered if it was asked."""
        return not any(server.fate == "left_out" for server in self.plan.servers) and not any(
            answer.error is not None for answer in self.answers.values()
        )


def lines(written: Written) -> Iterator[RenderableType]:
    """Yield the summary, what is to be put into the client, and what to type next."""
    yield Text.assemble("Written: ", (plain(str(written.config)), "bold"), " (0600)", _secrets(written))
    yield _table(written)
    for server in written.plan.servers:
        for said in _said(server, written.answers.get(server.name)):
            yield remark("note", "yellow", f"{server.name}: {said}")
    if any(answer.error is not None for answer in written.answers.values()):
        yield paragraph(BY_HAND)
    yield Text()
    yield paragraph(f"In the client's file, put this in place of {_replaced(written.plan)}:")
    yield Text(f"\n{written.block}\n")
    yield paragraph(_RUN if written.run_id is None else _NAMED)
    yield Text(f"\nNext:\n\n{_next(written)}")


def _replaced(plan: Plan) -> str:
    """What is left out goes on without effectd, as its client has it."""
    stays = any(server.fate == "left_out" for server in plan.servers)
    return "the servers above" + (", but for those that were left out" if stays else "")


def _secrets(written: Written) -> str:
    count = len(written.plan.secrets)
    if not count:
        return "; there are no secrets in it, and none were found"
    files = "1 secret" if count == 1 else f"{count} secrets"
    return f"; {files} in {plain(written.secrets.name)}/ (0700)"


def _table(written: Written) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("server", "provider", "state", "tools", "once-per-run", "reads", "perhaps reads"):
        table.add_column(heading, overflow="fold")
    for server in written.plan.servers:
        table.add_row(plain(server.source), *_row(server, written.answers.get(server.name)))
    return table


def _row(server: Planned, answer: Answer | None) -> tuple[str | Text, ...]:
    if server.provider is None:
        words, style = _FATES[server.fate]
        return ("", Text(words, style=style))
    if answer is None:
        return (server.name, "not asked")
    if answer.proposals is None:
        return (server.name, Text("no answer", style="bold red"))
    return (server.name, Text("answered", style="green"), *_counts(answer.proposals))


def _counts(proposals: Proposals) -> tuple[str, ...]:
    tools = len(proposals.contracts) + len(proposals.others) + proposals.unnamed
    counted = (len(proposals.of(kind)) for kind in ("once-per-run", "read", "maybe-read"))
    return tuple(str(number) for number in (tools, *counted))


def _said(server: Planned, answer: Answer | None) -> Iterator[str]:
    if server.provider is None:
        if server.fate == "left_out":
            yield server.reason
        return
    yield from server.notes
    if answer is not None and answer.error is not None:
        yield answer.error


def _next(written: Written) -> str:
    return "\n".join(
        (
            f"  export EFFECTD_CONFIG={shlex.quote(str(written.config))}",
            "  effectd check --connect      # the contracts, against what servers serve",
            "  effectd run                  # the daemon; leave it running",
            "  effectd ops --watch          # what the agent does, as it happens",
        )
    )
