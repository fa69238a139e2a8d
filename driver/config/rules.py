"""What keys of the configuration mean together: the contradictions that no single key shows.

Part of `driver.config`; imports its models and `driver.core`. Each rule is a function of the tables
it looks at, and returns the key that it would have changed, with the reason, or None. A rule never meets a
key that is wrong by itself: see `driver.config.document.salvage`.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from driver.config.errors import Clash, Found, Problem
from driver.config.fields import is_loopback
from driver.config.models import (
    Config,
    ControlTable,
    DriverTable,
    GatewayTable,
    JournalTable,
    SupervisorTable,
)
from driver.config.providers import (
    CommandProviderTable,
    CommonProviderTable,
    CompensateTable,
    HttpProviderTable,
    HttpToolTable,
    McpProviderTable,
    ProbeTable,
    ProviderTable,
    ToolTable,
)
from driver.config.reaching import REACHING
from driver.config.sockets import OPERATOR_SOCKET, SOCKET_PATH_BYTES_MAX
from driver.config.table import Table, tables
from driver.core.headers import wrong_name
from driver.core.redaction import covers


def contradictions(config: Config, *, whole: bool) -> Iterator[Problem]:
    """Yield each contradiction in `config`; where it is not `whole`, those that its right keys show."""
    for path, chain in tables(config):
        for check in _checks(chain):
            try:
                clash = check()
            except AttributeError:
                if whole:
                    raise
                continue  # the rule looks at a key that is wrong by itself, and reported as such
            if clash:
                yield Problem(table=path, key=clash.key, message=clash.message)


def _checks(chain: tuple[Table, ...]) -> Iterator[Callable[[], Found]]:
    match chain:
        case (_, DriverTable() as driver):
            yield from (partial(rule, driver) for rule in DRIVER)
        case (_, ControlTable() as control):
            yield from (partial(rule, control) for rule in CONTROL)
        case (_, JournalTable() as journal):
            yield from (partial(rule, journal) for rule in JOURNAL)
        case (_, GatewayTable() as gateway):
            yield from (partial(rule, gateway) for rule in GATEWAY)
        case (_, SupervisorTable() as supervisor):
            yield from (partial(rule, supervisor) for rule in SUPERVISOR)
        case (
            Config() as config,
            (McpProviderTable() | CommandProviderTable() | HttpProviderTable()) as provider,
        ):
            yield from (partial(rule, provider) for rule in PROVIDER)
            yield from (partial(rule, provider, config) for rule in PLACE)
        case (_, CommonProviderTable() as provider, ToolTable() as tool):
            yield from (partial(rule, tool, provider) for rule in TOOL)
        case (
            _,
            (McpProviderTable() | CommandProviderTable() | HttpProviderTable()) as provider,
            _,
            ProbeTable() as probe,
        ):
            yield from (partial(rule, probe, provider) for rule in PROBE)
        case (
            _,
            (McpProviderTable() | CommandProviderTable() | HttpProviderTable()) as provider,
            ToolTable() as tool,
            CompensateTable() as compensation,
        ):
            yield from (partial(rule, compensation, provider) for rule in COMPENSATION)
            yield partial(_compensation_keeps_secrets, compensation, provider, tool)
        case _:
            pass


def _sockets_fit(driver: DriverTable) -> Found:
    longest = os.fsencode(os.path.join(driver.runtime_dir, OPERATOR_SOCKET))  # noqa: PTH118 may be text still
    if len(longest) <= SOCKET_PATH_BYTES_MAX:
        return None
    return Clash(
        "runtime_dir",
        f"too long: a socket's path has at most {SOCKET_PATH_BYTES_MAX} bytes, and this folder's would have "
        f"{len(longest)}; use a shorter folder",
    )


def _plaintext_is_allowed(control: ControlTable) -> Found:
    if control.url.startswith("wss:") or control.allow_plaintext or is_loopback(control.url):
        return None
    return Clash(
        "url",
        "ws:// sends the token in the clear beyond this machine: use wss://, or set allow_plaintext = true",
    )


def _certificates_need_tls(control: ControlTable) -> Found:
    files = {
        "ca_file": control.ca_file,
        "client_cert_file": control.client_cert_file,
        "client_key_file": control.client_key_file,
    }
    if control.url.startswith("wss:") or not (given := [key for key, value in files.items() if value]):
        return None
    return Clash(given[0], "means nothing with ws://: use wss://, or leave it out")


def _key_needs_certificate(control: ControlTable) -> Found:
    if control.client_key_file and not control.client_cert_file:
        return Clash("client_key_file", "belongs to a certificate: set client_cert_file too")
    return None


def _reserve_fits(journal: JournalTable) -> Found:
    if journal.reserve_bytes < journal.max_bytes:
        return None
    return Clash(
        "reserve_bytes",
        f"{journal.reserve_bytes:,} leaves no room for calls in max_bytes = {journal.max_bytes:,}: "
        "the reserve must be smaller",
    )


def _listening_needs_token(gateway: GatewayTable) -> Found:
    if gateway.listen and gateway.token_file is None:
        return Clash("token_file", "missing, and required with listen")
    return None


def _model_has_name(supervisor: SupervisorTable) -> Found:
    if supervisor.model in {"openai", "anthropic"} and supervisor.model_name is None:
        return Clash("model_name", f'missing, and required with model = "{supervisor.model}"')
    return None


def _model_has_key(supervisor: SupervisorTable) -> Found:
    if supervisor.model == "anthropic" and supervisor.api_key_file is None:
        return Clash("api_key_file", 'missing, and required with model = "anthropic"')
    return None


def _model_has_program(supervisor: SupervisorTable) -> Found:
    if (supervisor.model == "command") == (supervisor.argv is not None):
        return None
    if supervisor.argv is None:
        return Clash("argv", 'missing, and required with model = "command"')
    return Clash("argv", f'belongs to model = "command", and model is "{supervisor.model}"')


def _model_is_remote(supervisor: SupervisorTable) -> Found:
    remote = {
        "base_url": supervisor.base_url,
        "model_name": supervisor.model_name,
        "api_key_file": supervisor.api_key_file,
    }
    given = [key for key, value in remote.items() if value is not None]
    if supervisor.model in {"openai", "anthropic"} or not given:
        return None
    return Clash(given[0], f'belongs to model = "openai" or "anthropic", and model is "{supervisor.model}"')


def _model_key_is_safe(supervisor: SupervisorTable) -> Found:
    url = supervisor.base_url
    if url is None or supervisor.api_key_file is None or url.startswith("https:") or is_loopback(url):
        return None
    return Clash("base_url", "http:// sends the key in the clear beyond this machine: use https://")


def _variables_are_distinct(provider: ProviderTable) -> Found:
    if both := sorted(set(provider.env) & set(provider.env_files)):
        return Clash("env_files", f"{', '.join(both)} stands in env too: keep one")
    return None


def _carrier_suits_kind(provider: ProviderTable) -> Found:
    if _has_place_for(provider.key.partition(":")[0], provider):
        return None
    return Clash("key", f'found "{provider.key}", which calls of this provider have no place for')


def _has_place_for(carrier: str, provider: ProviderTable) -> bool:
    match provider:
        case McpProviderTable():
            return carrier != "header" or provider.argv is None
        case HttpProviderTable():
            return carrier not in {"meta", "sep3182"}
        case CommandProviderTable():
            return carrier in {"none", "argument"}


def _requests_start_nothing(provider: ProviderTable) -> Found:
    if not isinstance(provider, HttpProviderTable):
        return None
    given = [key for key, value in (("cwd", provider.cwd), ("roots", provider.roots)) if value]
    return (
        Clash(given[0], "belongs to a provider that starts programs, and this one has none")
        if given
        else None
    )


def _programs_run_within_roots(provider: ProviderTable, config: Config) -> Found:
    """As the paths are written; where links lead is looked at for each call."""
    if not isinstance(provider, CommandProviderTable) or provider.cwd is None:
        return None
    roots = provider.roots or (config.work_dir,)
    folder = os.path.normpath(provider.cwd)
    if any(Path(folder).is_relative_to(os.path.normpath(root)) for root in roots):
        return None
    named = ", ".join(str(root) for root in roots)
    return Clash("cwd", f'found "{provider.cwd}", which lies in none of the roots ({named}): add it to roots')


def _key_may_be_a_header(provider: ProviderTable) -> Found:
    carrier, _, name = provider.key.partition(":")
    if not isinstance(provider, HttpProviderTable) or carrier != "header":
        return None
    wrong = wrong_name(name)
    return Clash("key", f'found "{provider.key}"; {wrong}') if wrong else None


def _headers_are_distinct(tool: ToolTable, provider: CommonProviderTable) -> Found:
    if not isinstance(tool, HttpToolTable):
        return None
    carrier, _, key = provider.key.partition(":")
    if carrier == "header" and key.lower() in {name.lower() for name in tool.headers}:
        return Clash("headers", f"{key} carries the idempotency key: leave it out")
    lower = [name.lower() for name in tool.headers]
    if twice := sorted(name for name in tool.headers if lower.count(name.lower()) > 1):
        return Clash("headers", f"{', '.join(twice)} are one header: keep one")
    return None


def _idempotency_ends(tool: ToolTable, _: CommonProviderTable) -> Found:
    if tool.idempotent and tool.dedupe_horizon_s is None:
        return Clash(
            "dedupe_horizon_s",
            "missing, and required with idempotent = true: how long does the provider remember a key?",
        )
    return None


def _retry_is_idempotent(tool: ToolTable, _: CommonProviderTable) -> Found:
    if tool.retry == "same-key" and not tool.idempotent:
        return Clash(
            "retry", 'found "same-key", which needs idempotent = true: else a retry may be a second effect'
        )
    return None


def _retry_carries_key(tool: ToolTable, provider: CommonProviderTable) -> Found:
    if tool.retry == "same-key" and provider.key == "none":
        return Clash(
            "retry", 'found "same-key", which needs a key carrier, and the provider has key = "none"'
        )
    return None


def _retry_asks_nobody(tool: ToolTable, _: CommonProviderTable) -> Found:
    if tool.retry == "same-key" and tool.approval == "required":
        return Clash(
            "retry", 'found "same-key", which excludes approval = "required": one approval is one attempt'
        )
    return None


def _read_has_no_effect(tool: ToolTable, _: CommonProviderTable) -> Found:
    if tool.effect == "write":
        return None
    given = [key for key, value in (("probe", tool.probe), ("compensate", tool.compensate)) if value]
    return Clash(given[0], 'belongs to a write, and the tool has effect = "read"') if given else None


def _receipt_is_not_redacted(tool: ToolTable, _: CommonProviderTable) -> Found:
    """What other expressions find is looked at when they have found it."""
    if tool.receipt is None or not _PLAIN_PATH.fullmatch(tool.receipt):
        return None
    place = re.split(r"[.\[\]]+", tool.receipt.rstrip("]"))
    if redacted := [path for path in tool.redact if covers(path, place)]:
        return Clash(
            "receipt",
            f'found "{tool.receipt}", which redact withholds ("{redacted[0]}"): name what may be kept',
        )
    return None


_PLAIN_PATH: Final = re.compile(r"result(?:\.\w+|\[\d+\])+", re.ASCII)
"""A JMESPath expression that names one place."""


def _probe_reads(probe: ProbeTable, provider: ProviderTable) -> Found:
    target = provider.tools.get(probe.tool)
    if target and target.effect == "read":
        return None
    return Clash(
        "tool", f'found "{probe.tool}"; allowed: a tool of the same provider declared with effect = "read"'
    )


def _probe_asks_nobody(probe: ProbeTable, provider: ProviderTable) -> Found:
    target = provider.tools.get(probe.tool)
    if target is None or target.approval == "none":
        return None
    return Clash(
        "tool",
        f'found "{probe.tool}", which has approval = "required": a probe runs by itself, and asks nobody',
    )


def _compensation_acts(compensation: CompensateTable, provider: ProviderTable) -> Found:
    target = provider.tools.get(compensation.tool)
    if target is None or target.effect == "write":
        return None
    return Clash("tool", f'found "{compensation.tool}", which has effect = "read", and takes nothing back')


def _compensation_exists(compensation: CompensateTable, provider: ProviderTable) -> Found:
    """The tools of an MCP server are asked for with `effectd check --connect`."""
    if isinstance(provider, McpProviderTable) or compensation.tool in provider.tools:
        return None
    declared = ", ".join(sorted(provider.tools))
    return Clash("tool", f'found "{compensation.tool}"; allowed: a tool of the same provider ({declared})')


def _compensation_leaves_key(compensation: CompensateTable, provider: ProviderTable) -> Found:
    carrier, _, name = provider.key.partition(":")
    if carrier != "argument" or name not in compensation.arguments:
        return None
    return Clash(
        "arguments",
        f'sets "{name}", which carries the key of the compensation itself (key = "{provider.key}"): leave it '
        "out, and name what is taken back in another argument",
    )


def _compensation_keeps_secrets(
    compensation: CompensateTable, provider: ProviderTable, tool: ToolTable
) -> Found:
    """What is withheld of a call must be withheld of the call that takes it back."""
    if not any(path.partition(".")[0] == "arguments" for path in tool.redact):
        return None
    target = provider.tools.get(compensation.tool)
    withheld = () if target is None else target.redact
    for name, value in compensation.arguments.items():
        repeats = "arguments" in json.dumps(value)
        if repeats and not any(covers(path, ("arguments", name)) for path in withheld):
            return Clash(
                "arguments",
                f'"{name}" may repeat what redact withholds of the call: declare '
                f'redact = ["arguments.{name}"] for the tool "{compensation.tool}", too',
            )
    return None


DRIVER: Final = (_sockets_fit,)
CONTROL: Final = (_plaintext_is_allowed, _certificates_need_tls, _key_needs_certificate)
JOURNAL: Final = (_reserve_fits,)
GATEWAY: Final = (_listening_needs_token,)
SUPERVISOR: Final = (
    _model_has_name,
    _model_has_key,
    _model_has_program,
    _model_is_remote,
    _model_key_is_safe,
)
PROVIDER: Final = (
    *REACHING,
    _variables_are_distinct,
    _carrier_suits_kind,
    _requests_start_nothing,
    _key_may_be_a_header,
)
PLACE: Final = (_programs_run_within_roots,)
TOOL: Final = (
    _idempotency_ends,
    _retry_is_idempotent,
    _retry_carries_key,
    _retry_asks_nobody,
    _read_has_no_effect,
    _receipt_is_not_redacted,
    _headers_are_distinct,
)
PROBE: Final = (_probe_reads, _probe_asks_nobody)
COMPENSATION: Final = (_compensation_acts, _compensation_exists, _compensation_leaves_key)
