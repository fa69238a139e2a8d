"""`effectd conformance`: examine an agent runtime, and print what can be said of it.

Part of `driver.cli`; imports `driver.conformance`.

    click.ClickException
     ├── NotExamined   1   the adapter does not keep to its three verbs, or the battery does not work here
     └── NoAdapter     2   there is no such adapter
"""

import shlex
import shutil
from collections.abc import Iterator, Sequence
from functools import partial

import anyio
import click
from rich.console import RenderableType

from driver.cli import views
from driver.cli.failures import EXIT_REFUSED
from driver.cli.options import json_option
from driver.cli.output import show, write_json
from driver.cli.plain import plain
from driver.conformance.battery import ADAPTERS, Certificate, Judged, built_in, examine, self_check
from driver.conformance.cases import CASES
from driver.conformance.errors import ConformanceError
from driver.conformance.verdict import MEANING

_STYLES = {"passed": "green", "failed": "bold red", "not_exercised": "yellow"}


class NotExamined(click.ClickException):
    """Nothing can be said of the adapter."""

    exit_code = EXIT_REFUSED

    def __init__(self, cause: ConformanceError) -> None:
        self.cause = cause
        super().__init__(plain(str(cause)))


class NoAdapter(click.BadParameter):
    """Neither an adapter that comes with effectd, nor a program."""

    def __init__(self, adapter: str) -> None:
        self.adapter = adapter
        known = ", ".join(ADAPTERS)
        super().__init__(plain(f"it is none of {known}, and no program that can be found: {adapter!r}"))


@click.command()
@click.argument("adapter", metavar="ADAPTER")
@click.option("--case", "cases", type=click.Choice(list(CASES)), multiple=True, help="Only this case.")
@click.option("--no-self-check", is_flag=True, help="Do not judge the battery's own two clients first.")
@json_option
@click.pass_context
def conformance(
    ctx: click.Context, adapter: str, cases: Sequence[str], *, no_self_check: bool, as_json: bool
) -> None:
    """Examine what an agent runtime does when tools time out, fail, answer twice, or when it is killed.

    ADAPTER is one that comes with effectd (effectd, in-memory), or the command of
    your own: a program that answers three verbs in lines of JSON (docs/conformance.md). It takes some
    minutes. The certificate is the JSON that --json prints. Exits 0 where no case failed, else 1.
    """
    argv = _command(adapter)
    try:
        if not no_self_check:
            anyio.run(self_check)
        told = _unheard if as_json else _tell
        certificate = anyio.run(partial(examine, adapter, argv, cases=cases, told=told))
    except ConformanceError as error:
        raise NotExamined(error) from error
    if as_json:
        write_json(certificate.as_json())
    else:
        show(_account(certificate))
    ctx.exit(0 if certificate.conforms else EXIT_REFUSED)


def _command(adapter: str) -> Sequence[str]:
    """Return the command of an adapter. Raises `NoAdapter`."""
    if adapter in ADAPTERS:
        return built_in(adapter)
    argv = shlex.split(adapter)
    if not argv or shutil.which(argv[0]) is None:
        raise NoAdapter(adapter)
    return argv


def _unheard(judged: Judged) -> None:
    """Say nothing: the certificate says it all."""
    del judged


def _tell(judged: Judged) -> None:
    """Say how a case ended, as it ends."""
    show([_line(judged)])


def _line(judged: Judged) -> RenderableType:
    found = judged.found
    effects = "1 effect" if found.effects == 1 else f"{found.effects} effects"
    why = "".join(f"; {harm}" for harm in sorted(found.harms))
    verdict = judged.verdict.replace("_", " ")
    return views.line(
        (f"{verdict:<14}", _STYLES[judged.verdict]), f"{judged.case}: told {found.told}, {effects}{why}"
    )


def _account(certificate: Certificate) -> Iterator[RenderableType]:
    """Yield what the harms mean that were found, and the verdict."""
    found = sorted({harm for judged in certificate.judged for harm in judged.found.harms})
    for harm in found:
        yield views.line(("  " + harm, "bold"), f": {MEANING[harm]}")
    about = certificate.about
    word = ("conforms", "bold green") if certificate.conforms else ("does not conform", "bold red")
    yield views.line(f"{about.runtime} {about.version} ", word, ".")
