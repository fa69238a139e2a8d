"""The imported configuration as text, with what a person should know beside what it is about.

Part of `driver.importing`, pure: imports its siblings, `planning`, `proposing` and `toml`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from driver.importing import toml
from driver.importing.planning import Plan, Planned, Provider
from driver.importing.proposing import Proposal, Proposals

LISTED_MAX: Final = 60
"""Names in one comment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """Where things are to be, as the configuration writes it; None: the daemon's own defaults."""

    state_dir: str | None
    runtime_dir: str | None
    secrets_dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server said when it was asked for its tools: those, or why there are none."""

    proposals: Proposals | None = None
    error: str | None = None


def render(plan: Plan, folders: Folders, answers: Mapping[str, Answer]) -> str:
    """Return the configuration as TOML; `answers` are those of the providers that were asked, by name."""
    lines = [*_head(plan), "", *_driver(folders), "", *_gateway()]
    for server in plan.servers:
        lines.append("")
        if server.provider is None:
            lines.extend(toml.sentences(f"{server.source}: not taken over, because {server.reason}."))
        else:
            lines.extend(_provider(server, server.provider, folders, answers.get(server.name)))
    return "\n".join(lines) + "\n"


def _head(plan: Plan) -> Iterator[str]:
    yield toml.comment(f"Made by effectd init from {plan.source.name}. It is yours now: read it, change it.")
    yield toml.comment("effectd check --connect holds it against what the servers serve.")


def _driver(folders: Folders) -> Iterator[str]:
    yield "[driver]"
    for key, folder in (("state_dir", folders.state_dir), ("runtime_dir", folders.runtime_dir)):
        if folder is not None:
            yield f"{key} = {toml.string(folder)}"
    yield toml.comment(
        "If the agent runs as your own user, you can approve its calls only with the next line. So can"
    )
    yield toml.comment("it, then, where it has a shell.")
    yield toml.comment("allow_self_approval = true")


def _gateway() -> Iterator[str]:
    yield f"[gateway]{' ' * 27}{toml.comment('effectd mcp: what the agent starts in place of its servers')}"


def _provider(server: Planned, provider: Provider, folders: Folders, answer: Answer | None) -> Iterator[str]:
    if server.name != server.source:
        yield toml.comment(f"{server.source}, in the client's file.")
    for note in server.notes:
        yield from toml.sentences(f"Note: {note}.")
    if answer is not None and answer.error is not None:
        yield from toml.sentences(f"It did not answer when it was imported: {answer.error}")
    yield f"[providers.{server.name}]"
    yield 'kind = "mcp"'
    yield from _keys(provider, folders)
    if answer is not None and answer.proposals is not None:
        yield from _contracts(server.name, answer.proposals)


def _keys(provider: Provider, folders: Folders) -> Iterator[str]:
    if provider.argv:
        yield f"argv = {toml.array(provider.argv)}"
    if provider.url is not None:
        yield f"url = {toml.string(provider.url)}"
    if provider.url_file is not None:
        yield f"url_file = {toml.string(_path(provider.url_file, folders))}"
    if provider.cwd is not None:
        yield f"cwd = {toml.string(provider.cwd)}"
    if provider.env:
        yield f"env = {toml.table(provider.env)}"
    for key, files in (("env_files", provider.env_files), ("header_files", provider.header_files)):
        if files:
            yield f"{key} = {toml.table({name: _path(file, folders) for name, file in files.items()})}"


def _path(file: str, folders: Folders) -> str:
    return f"{folders.secrets_dir}/{file}"


def _contracts(name: str, proposals: Proposals) -> Iterator[str]:
    for proposal in proposals.of("once-per-run"):
        yield ""
        yield f"{_header(name, proposal.tool)}  {toml.comment(proposal.why)}"
        yield 'identical = "once-per-run"'
        yield toml.comment('approval = "required"')
    for proposal in proposals.of("read"):
        yield ""
        yield f"{_header(name, proposal.tool)}  {toml.comment(proposal.why)}"
        yield 'effect = "read"'
    if maybe := proposals.of("maybe-read"):
        yield ""
        yield toml.comment("Do these change nothing at all? Then take the # away: reads may run at any time.")
        for proposal in maybe:
            yield from _maybe(name, proposal)
    yield from _others(proposals)


def _maybe(name: str, proposal: Proposal) -> Iterator[str]:
    header = _header(name, proposal.tool)
    yield f"{toml.comment(header)}  {toml.comment(proposal.why)}"
    yield toml.comment('effect = "read"')


def _others(proposals: Proposals) -> Iterator[str]:
    if proposals.others:
        yield ""
        yield toml.comment("Without a contract each call is a write, which is never repeated by itself:")
        yield from _wrapped(proposals.others)
    if proposals.unnamed:
        yield toml.comment(f"{proposals.unnamed} more, whose names are too long or do not print.")


def _wrapped(names: tuple[str, ...]) -> Iterator[str]:
    line = ""
    for name in names[:LISTED_MAX]:
        if line and len(line) + len(name) > toml.LINE_CHARS:
            yield toml.comment(f"{line},")
            line = ""
        line = f"{line}, {name}" if line else name
    more = len(names) - LISTED_MAX
    yield toml.comment(f"{line}, and {more} more" if more > 0 else line)


def _header(provider: str, tool: str) -> str:
    return f"[providers.{provider}.tools.{toml.key(tool)}]"
