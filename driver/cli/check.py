"""`effectd check`: whether the configuration is valid, and the providers serve what it declares.

Part of `driver.cli`; imports `driver.config`, and with `--connect` the providers.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from driver import log
from driver.cli import report
from driver.cli.controls import Controls, controls
from driver.cli.failures import EXIT_DONE, EXIT_REFUSED
from driver.cli.options import config_option, json_option
from driver.cli.output import show, write_json
from driver.cli.proofs import Proof, declaration, read_proofs, write_proofs
from driver.cli.report import Checked, probe_report
from driver.cli.selftest import Tested
from driver.cli.surroundings import Warned, warnings
from driver.config.errors import ConfigError
from driver.config.load import load
from driver.config.models import Config
from driver.config.providers import ProbeTable

if TYPE_CHECKING:
    from driver.cli.asking import Asked


@click.command()
@click.option("--connect", is_flag=True, help="Start the providers, and ask which tools they serve.")
@click.option("--selftest", is_flag=True, help="With --connect: run each probe against what is known.")
@config_option
@json_option
@click.pass_context
def check(ctx: click.Context, config_file: Path, *, connect: bool, selftest: bool, as_json: bool) -> None:
    """Validate the configuration and the tool contracts.

    Nothing is started, unless --connect is given: then each provider is started, asked for its tools and
    ended again; no tool is called. With --selftest each probe looks for an operation that is known to have
    succeeded, and for one that cannot exist: it must find the first, and nothing of the second. Exits 0
    where all is well, 1 where a contract cannot be kept or a probe fails, 2 where the configuration is wrong.
    """
    if selftest and not connect:
        message = "--selftest asks the providers: give --connect, too"
        raise click.UsageError(message)
    try:
        config = load(config_file)
    except ConfigError as error:
        if as_json:
            write_json(report.invalid_as_json(error))
        raise
    checked = _check(config_file, config, connect=connect, selftest=selftest)
    if as_json:
        write_json(report.as_json(checked))
    else:
        show(report.lines(checked))
    ctx.exit(EXIT_DONE if checked.healthy else EXIT_REFUSED)


def _check(config_file: Path, config: Config, *, connect: bool, selftest: bool) -> Checked:
    probes = _probes(config)
    known = controls(config_file, config, tuple(probes)) if selftest else None
    asked = _ask(config, known) if connect else None
    warned = list(warnings(config))
    proofs = dict(read_proofs(config.driver.state_dir))
    if selftest and asked is not None:
        proofs = _renewed(probes, proofs, asked.tests)
        try:
            write_proofs(config.driver.state_dir, proofs)
        except OSError as error:
            if any(tested.status == "passed" for tested in asked.tests.values()):
                message = f"what the self-test has shown cannot be kept there: {error.strerror}"
                warned.append(Warned(table=("driver",), key="state_dir", message=message))
    return Checked(
        path=config_file,
        config=config,
        warned=tuple(warned),
        providers=None if asked is None else asked.providers,
        probes=tuple(
            probe_report(tool, table, proofs.get(tool), None if asked is None else asked.tests.get(tool))
            for tool, table in probes.items()
        ),
    )


def _probes(config: Config) -> dict[str, ProbeTable]:
    """Return the declared probes by the full name of the tool that each is about."""
    return {
        f"{name}/{tool}": table.probe
        for name, provider in config.providers.items()
        for tool, table in provider.tools.items()
        if table.probe is not None
    }


def _renewed(
    probes: Mapping[str, ProbeTable], proofs: Mapping[str, Proof], tests: Mapping[str, Tested]
) -> dict[str, Proof]:
    """Return what is known of the probes after a test: one that fails has not passed, whatever was before."""
    now = datetime.now(UTC)
    kept = {
        tool: proof
        for tool, proof in proofs.items()
        if tool in probes and (tool not in tests or tests[tool].status == "untested")
    }
    passed = {
        tool: Proof(
            declaration=declaration(probes[tool]), passed_at=now, operation_id=tested.operation_id or ""
        )
        for tool, tested in tests.items()
        if tested.status == "passed"
    }
    return {**kept, **passed}


def _ask(config: Config, known: Controls | None) -> "Asked":
    log.configure("error", "auto")
    from driver.cli.asking import ask  # noqa: PLC0415 the MCP SDK costs a second, and only --connect needs it

    return anyio.run(ask, config, known)
