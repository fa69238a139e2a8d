"""`effectd conformance`: examine an agent runtime, and print what can be said of it.

Part of `driver.cli`; imports `driver.conformance`.

    click.ClickException
     ├── NotExamined   1   the adapter does not keep to its three verbs, or the battery does not work here
     ├── NoAdapter     2   there is no such adapter
     └── NoInterpreter 2   what --python names is no program

SIGTERM and SIGHUP end it as Ctrl-C does: nothing of the subject is left. It exits with 128 and the signal.
Under `nohup` SIGHUP stays ignored.
"""

import os
import shlex
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from time import monotonic
from typing import Final, TypeVar

import anyio
import click
from rich.console import RenderableType

from driver.cli import views
from driver.cli.failures import EXIT_REFUSED
from driver.cli.options import json_option
from driver.cli.output import show, write_json
from driver.cli.plain import plain
from driver.conformance.battery import ADAPTERS, WATCH_S, Watch, built_in, examine, self_check
from driver.conformance.cases import CASES
from driver.conformance.certificate import Certificate, Judged
from driver.conformance.errors import ConformanceError
from driver.conformance.verdict import MEANING
from driver.hangup import hangup

T = TypeVar("T")
_STYLES: Final = {"passed": "green", "failed": "bold red", "not_exercised": "yellow"}


class NotExamined(click.ClickException):
    """Nothing can be said of the adapter."""

    exit_code = EXIT_REFUSED

    def __init__(self, cause: ConformanceError) -> None:
        self.cause = cause
        super().__init__("\n".join(map(plain, str(cause).splitlines())))


class NoAdapter(click.BadParameter):
    """Neither an adapter that comes with effectd, nor a program."""

    def __init__(self, adapter: str) -> None:
        self.adapter = adapter
        known = ", ".join(ADAPTERS)
        super().__init__(plain(f"it is none of {known}, and no program that can be found: {adapter!r}"))


class NoInterpreter(click.BadParameter):
    """What is to run the adapter is no program."""

    def __init__(self, python: str) -> None:
        self.python = python
        super().__init__(plain(f"{python!r} is no program"), param_hint="'--python'")


@click.command()
@click.argument("adapter", metavar="ADAPTER")
@click.option(
    "--case",
    "cases",
    type=click.Choice(list(CASES)),
    multiple=True,
    metavar="CASE",
    help=f"Only this case; may be given several times: {', '.join(CASES)}.",
)
@click.option(
    "--python",
    type=click.Path(exists=True, dir_okay=False),
    default=sys.executable,
    metavar="FILE",
    help="The interpreter that runs an adapter of a framework: the one that has its packages.",
)
@click.option("--no-self-check", is_flag=True, help="Do not judge the battery's own clients first.")
@json_option
@click.pass_context
def conformance(
    ctx: click.Context, adapter: str, cases: Sequence[str], python: str, *, no_self_check: bool, as_json: bool
) -> None:
    """Examine what an agent runtime does when tools time out, fail, answer twice, or when it is killed.

    ADAPTER is one that comes with effectd (effectd, in-memory, langgraph, pydantic-ai), or the command of
    your own: a program, in any language, that answers three verbs in lines of JSON (docs/conformance.md). It
    takes some minutes. The certificate is the JSON that --json prints; it says that a runtime conforms only
    where every case was played. Exits 0 where no case failed and one passed, 1 where one failed, none passed,
    or the adapter does not keep to the three verbs, and 2 where there is no such adapter.
    """
    argv = _command(adapter, python)
    watch = _watch()
    try:
        if not no_self_check:
            _run(partial(self_check, watch))
        told = _unheard if as_json else _tell
        checked = not no_self_check
        played = partial(examine, adapter, argv, cases=cases, told=told, watch=watch, self_checked=checked)
        certificate = _run(played)
    except ConformanceError as error:
        raise NotExamined(error) from error
    if as_json:
        write_json(certificate.as_json())
    else:
        show(_account(certificate))
    ctx.exit(0 if certificate.passed and not certificate.failed else EXIT_REFUSED)


def _run(work: Callable[[], Awaitable[T]]) -> T:
    """Do it, unless this process is told to end: then what it has started is killed, and it exits."""
    done: list[T | ConformanceError] = []
    told: list[signal.Signals] = []

    async def wait(cancel: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, *hangup()) as signals:
            async for received in signals:
                told.append(received)
                cancel.cancel()

    async def both() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, tasks.cancel_scope)
            try:
                done.append(await work())
            except ConformanceError as error:  # not in a group of errors, as which it would leave the tasks
                done.append(error)
            tasks.cancel_scope.cancel()

    anyio.run(both)
    if told:
        sys.exit(128 + told[0])
    [end] = done
    if isinstance(end, ConformanceError):
        raise end
    return end


def _command(adapter: str, python: str) -> Sequence[str]:
    """Return the command of an adapter. Raises `NoAdapter` and `NoInterpreter`."""
    if adapter in ADAPTERS:
        if not os.access(python, os.X_OK):
            raise NoInterpreter(python)
        return built_in(adapter, python)
    try:
        argv = shlex.split(adapter)
    except ValueError:  # a quote that is not closed
        raise NoAdapter(adapter) from None
    if not argv or shutil.which(argv[0]) is None:
        raise NoAdapter(adapter)
    return argv


def _watch() -> Watch:
    """Return what says on standard error that a case runs, where nothing was said for `WATCH_S`."""
    last = monotonic()

    def watch(adapter: str, case: str, seconds: float) -> None:
        nonlocal last
        if monotonic() - last >= WATCH_S:
            last = monotonic()
            click.echo(plain(f"{adapter}: {case}, for {seconds:.0f} s"), err=True)

    return watch


def _unheard(judged: Judged) -> None:
    """Say nothing: the certificate says it all."""
    del judged


def _tell(judged: Judged) -> None:
    """Say how a case ended, as it ends."""
    show([_line(judged)])


def _line(judged: Judged) -> RenderableType:
    effects = "1 effect" if judged.effects == 1 else f"{judged.effects} effects"
    why = "".join(f"; {harm}" for harm in judged.harms)
    verdict = judged.verdict.replace("_", " ")
    return views.line(
        (f"{verdict:<14}", _STYLES[judged.verdict]), f"{judged.case}: told {judged.told}, {effects}{why}"
    )


def _account(certificate: Certificate) -> Iterator[RenderableType]:
    """Yield what the harms mean that were found, and the verdict."""
    found = sorted({harm for judged in certificate.cases for harm in judged.harms})
    for harm in found:
        yield views.line(("  " + harm, "bold"), f": {MEANING[harm]}")
    word = ("conforms", "bold green") if certificate.conforms else ("does not conform", "bold red")
    if not certificate.complete and certificate.passed and not certificate.failed:
        word = (f"passed {certificate.passed} of {len(CASES)} cases, and did not play all", "bold yellow")
    yield views.line(f"{certificate.runtime} {certificate.version} ", word, ".")
