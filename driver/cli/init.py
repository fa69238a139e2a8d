"""`effectd init`: a configuration from that of an MCP client, in one command.

Part of `driver.cli`; imports `driver.importing`, `driver.config`, and, to ask servers for their tools, the
providers.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import click

from driver import log
from driver.cli import imported
from driver.cli.failures import EXIT_DONE, EXIT_REFUSED, Misconfigured
from driver.cli.mcp import RunName
from driver.cli.options import CONFIG_VARIABLE
from driver.cli.output import show
from driver.config.errors import Problem
from driver.config.load import parse
from driver.config.models import Config
from driver.config.places import DEFAULT_PATH
from driver.core.attempts import NotSent
from driver.core.scrubbing import Scrubber
from driver.importing import planning
from driver.importing.clients import block
from driver.importing.errors import ImportRefused, SourceInvalid
from driver.importing.files import read_source, refuse_existing, secrets_written, write_private
from driver.importing.placeholders import Surroundings
from driver.importing.planning import Plan
from driver.importing.proposing import propose
from driver.importing.rendering import Answer, Folders, render
from driver.importing.shapes import Document, read_document

if TYPE_CHECKING:
    from driver.cli.asking import Listed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """Where the import writes."""

    config: Path
    state_dir: Path | None
    runtime_dir: Path | None
    force: bool

    @property
    def secrets(self) -> Path:
        return self.config.with_name(f"{self.config.stem}.secrets")

    @property
    def folders(self) -> Folders:
        """As the configuration writes them: beside itself, unless it is the system's own."""
        system = self.config == DEFAULT_PATH
        return Folders(
            state_dir=_written(self.state_dir, None if system else "state"),
            runtime_dir=_written(self.runtime_dir, None if system else "run"),
            secrets_dir=self.secrets.name,
        )


@click.command()
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="The client's file: .mcp.json, claude_desktop_config.json, mcp.json, config.toml, …",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    envvar=CONFIG_VARIABLE,
    show_envvar=True,
    metavar="FILE",
    help="The configuration to write. Default: ~/.config/effectd/effectd.toml; for root that of the system.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where the journal will be. Default: state/ beside the configuration.",
)
@click.option(
    "--runtime-dir",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where the sockets will be. Default: run/ beside the configuration.",
)
@click.option(
    "--skip", multiple=True, metavar="NAME", help="Leave this server out; may be given several times."
)
@click.option(
    "--trust-annotations",
    is_flag=True,
    help="Believe what servers say of their tools: those with readOnlyHint are declared as reads.",
)
@click.option("--no-connect", is_flag=True, help="Start no server; no contracts are proposed.")
@click.option(
    "--run",
    "run_id",
    type=RunName(),
    metavar="RUN",
    help="A run to name in the lines for the client. Default: none, and each start has one of its own.",
)
@click.option("--force", is_flag=True, help="Replace what is there already.")
@click.pass_context
def init(
    ctx: click.Context,
    /,
    source: Path,
    config_file: Path | None,
    state_dir: Path | None,
    runtime_dir: Path | None,
    skip: tuple[str, ...],
    run_id: str | None,
    **switches: bool,
) -> None:
    """Make a configuration from that of an MCP client, and say what to put into the client.

    It reads the JSON that desktop clients, editors and .mcp.json use, and the TOML form. Each server is
    started once and asked for its tools; none is called. Contracts are proposed from what it lists: a
    call of a tool that destroys is made once in a run, and what seems to read is written as a comment.
    Tokens, variables and headers go to files (mode 0600) beside the configuration, never into it.
    Variables that the file names are read from the environment.

    Exits 0 when all is done; 1 when the configuration was written, but a server did not answer or could not
    be taken over; 2 when nothing was written.
    """
    target = _Target(
        config=(config_file or default_config()).absolute(),
        state_dir=state_dir,
        runtime_dir=runtime_dir,
        force=switches["force"],
    )
    try:
        plan = _plan(source, frozenset(skip))
        answers = _write(plan, target, switches)
    except ImportRefused as error:
        raise Misconfigured(error) from error
    named = () if run_id is None else ("--run", run_id)
    argv = (_program(), "mcp", "--config", str(target.config), *named)
    written = imported.Written(
        config=target.config,
        secrets=target.secrets,
        plan=plan,
        answers=answers,
        block=block(plan.form, argv),
        run_id=run_id,
    )
    show(imported.lines(written))
    ctx.exit(EXIT_DONE if written.whole else EXIT_REFUSED)


def _plan(source: Path, skipped: frozenset[str]) -> Plan:
    path = source.absolute()
    document = read_document(read_source(source), path)
    around = _surroundings(document)
    return planning.plan(document, around, _variables(document, around, skipped), skipped)


def _surroundings(document: Document) -> Surroundings:
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 where there is no home, it stays `~`
    project = planning.project(document.path, home)
    return Surroundings(
        variables=os.environ,
        folder=project or document.path.parent,
        in_project=project is not None,
        home=home,
        inputs=document.inputs,
    )


_ENV_FILE_HINT: Final = "name one that is there, or leave the server out with --skip NAME"


def _variables(document: Document, around: Surroundings, skipped: frozenset[str]) -> Mapping[str, str]:
    """Return the texts of the files of variables that servers name. Raises `SourceInvalid`."""
    texts: dict[str, str] = {}
    problems: list[Problem] = []
    for named, file in planning.env_files(document, around, skipped).items():
        try:
            texts[named] = read_source(file.path, _ENV_FILE_HINT)
        except ImportRefused as error:
            problems.append(Problem(table=file.place, key="envFile", message=str(error)))
    if problems:
        raise SourceInvalid(document.path, problems)
    return texts


def _write(plan: Plan, target: _Target, switches: Mapping[str, bool]) -> Mapping[str, Answer]:
    """Write the secrets, ask the servers, and write the configuration last."""
    contents = {secret.name: secret.value for secret in plan.secrets}
    if not target.force:
        refuse_existing([target.config, *(target.secrets / name for name in contents)])
    first = parse(render(plan, target.folders, {}), target.config)
    with secrets_written(target.secrets, contents, force=target.force):
        answers: Mapping[str, Answer] = {}
        if plan.providers and not switches["no_connect"]:
            heard = _ask(first)
            answers = _answers(heard, contents, trust_annotations=switches["trust_annotations"])
        text = render(plan, target.folders, answers)
        parse(text, target.config)
        write_private(target.config, text, force=target.force)
    return answers


def _ask(config: Config) -> Mapping[str, "Listed"]:
    log.configure("error", "auto")
    from driver.cli.asking import listed  # noqa: PLC0415 the MCP SDK costs a second, and --no-connect spares it

    count = len(config.providers)
    click.echo(f"Asking {count} {'server' if count == 1 else 'servers'} for tools …", err=True)
    return anyio.run(listed, config)


def _answers(
    heard: Mapping[str, "Listed"], contents: Mapping[str, str], *, trust_annotations: bool
) -> Mapping[str, Answer]:
    scrubber = Scrubber(contents.values())
    answers: dict[str, Answer] = {}
    for name, listed in heard.items():
        if isinstance(listed, NotSent):
            scrubber.renew()
            answers[name] = Answer(error=scrubber.text(listed.message))
        else:
            answers[name] = Answer(proposals=propose(listed, trust_annotations=trust_annotations))
    return answers


def _written(given: Path | None, default: str | None) -> str | None:
    return default if given is None else str(given.absolute())


def default_config() -> Path:
    """Return what is written where nobody says: for root the system's, for others one in the home folder."""
    if os.geteuid() == 0:
        return DEFAULT_PATH
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 as above
    return Path(base) / "effectd" / "effectd.toml"


def _program() -> str:
    """A client may not have our folder on its PATH."""
    return shutil.which("effectd") or str(Path(sys.argv[0]).absolute())
