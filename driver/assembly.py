"""Maps a valid configuration to what each part of the daemon is told, and builds the providers.

Part of `driver`; may import everything of `driver`, and `store`. What a kind of provider needs is imported
only where there is one of it: the MCP SDK alone costs most of a second and of the memory.
"""

import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from driver.config.models import Config, ControlTable, GatewayTable
from driver.config.providers import (
    CommandProviderTable,
    CommandToolTable,
    HttpProviderTable,
    HttpToolTable,
    McpProviderTable,
    ProviderTable,
)
from driver.core.contracts import parse_key_carrier
from driver.core.frames import FRAME_BYTES_MAX
from driver.engine.posture import Limits
from driver.engine.traces import UNTRACED, Traces
from driver.link.errors import TokenUnusable
from driver.link.settings import LinkSettings
from driver.link.token import read_token
from driver.local.settings import LocalSettings
from driver.providers.command.settings import CommandSettings, Program
from driver.providers.http.settings import Endpoint
from driver.providers.http.settings import HttpSettings as HttpProviderSettings
from driver.providers.mcp.settings import HttpServer, McpSettings, StdioServer
from driver.providers.protocol import LateResults, Provider
from driver.providers.serving import NOBODY, Audience
from store.retention import RetentionSettings
from store.settings import JournalSettings

if TYPE_CHECKING:
    from driver.gateway.http import HttpSettings
    from driver.gateway.server import Gateway
    from driver.gateway.sources import Sources

TRACER_PROVIDER: Final = "OTEL_PYTHON_TRACER_PROVIDER"
"""The environment variable that names a provider to the API of OpenTelemetry."""


class GatewayTokenUnusable(Exception):
    """There is no token that clients of the gateway could show."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"gateway.token_file {path} {reason}: write a token into it, on one line, mode 0600")


def journal_settings(config: Config) -> JournalSettings:
    """Return where the journal is, and how large it may become."""
    return JournalSettings(
        state_dir=config.driver.state_dir,
        runtime_dir=config.driver.runtime_dir,
        max_bytes=config.journal.max_bytes,
        reserve_bytes=config.journal.reserve_bytes,
        allow_network_fs=config.journal.allow_network_fs,
        frame_bytes_max=(config.control.max_frame_bytes if config.control else FRAME_BYTES_MAX),
    )


def local_settings(config: Config) -> LocalSettings:
    """Return where the local API is served, and what it lets whom do."""
    driver = config.driver
    return LocalSettings(runtime_dir=driver.runtime_dir, allow_self_approval=driver.allow_self_approval)


def retention(config: Config) -> RetentionSettings:
    """Return how long what is kept in the journal."""
    journal = config.journal
    return RetentionSettings(
        retention=timedelta(days=journal.retention_days),
        retention_unknown=timedelta(days=journal.retention_unknown_days),
        tombstones=timedelta(days=journal.tombstone_days),
    )


def link_settings(control: ControlTable) -> LinkSettings:
    """Return where the plane is, and how it is talked to."""
    return LinkSettings(
        url=control.url,
        token_file=control.token_file,
        ca_file=control.ca_file,
        client_cert_file=control.client_cert_file,
        client_key_file=control.client_key_file,
        proxy=control.proxy,
        dead_after_s=control.dead_after_s,
        frame_bytes_max=control.max_frame_bytes,
    )


def limits(config: Config) -> Limits:
    """Return the bounds of the engine."""
    driver = config.driver
    return Limits(
        inflight_max=driver.max_inflight,
        queue_max=driver.queue_max,
        approvals_max=driver.approvals_max,
        run_unsettled_max=driver.run_unsettled_max,
        drain_s=driver.drain_s,
    )


def providers(config: Config, late: LateResults, audience: Audience = NOBODY) -> Mapping[str, Provider]:
    """Return one provider for each table, none of them started.

    `late` gets the answers that come late, `audience` hears what providers say unasked.
    """
    return {name: _provider(name, table, config, late, audience) for name, table in config.providers.items()}


def _provider(
    name: str, table: ProviderTable, config: Config, late: LateResults, audience: Audience
) -> Provider:
    match table:
        case McpProviderTable():
            from driver.providers.mcp.provider import McpProvider  # noqa: PLC0415 - see the module's docstring

            return McpProvider(_mcp_settings(name, table, config), late, audience)
        case HttpProviderTable():
            from driver.providers.http.provider import HttpProvider  # noqa: PLC0415 - see the module's docstring

            return HttpProvider(_http_settings(name, table), late)
        case CommandProviderTable():
            from driver.providers.command.provider import CommandProvider  # noqa: PLC0415 - see the module's docstring

            return CommandProvider(_command_settings(name, table, config))


def gateway(config: Config, sources: "Sources") -> "Gateway | None":
    """Return the gateway, not run yet; None where the configuration has none."""
    if config.gateway is None:
        return None
    from driver.gateway.server import Gateway, GatewaySettings  # noqa: PLC0415 - see the module's docstring

    settings = GatewaySettings(
        allow_self_approval=config.driver.allow_self_approval, http=_http_gateway(config.gateway)
    )
    return Gateway(sources, settings)


def _http_gateway(table: GatewayTable) -> "HttpSettings | None":
    if not table.listen:
        return None
    from driver.gateway.http import HttpSettings as Listening  # noqa: PLC0415 - see the module's docstring

    host, _, port = table.listen.rpartition(":")
    token_file = table.token_file
    assert token_file is not None, "the configuration requires it beside listen"

    async def read() -> str:
        try:
            return (await read_token(token_file)).value
        except TokenUnusable as error:
            raise GatewayTokenUnusable(token_file, error.reason) from error

    return Listening(host=host.strip("[]"), port=int(port), read_token=read)


def traces(config: Config, software: str) -> Traces:
    """Return what makes spans: nobody, unless a provider of OpenTelemetry is set up in this process."""
    # nobody can have set one up without this module, which costs five megabytes
    if "opentelemetry.trace" not in sys.modules and TRACER_PROVIDER not in os.environ:
        return UNTRACED
    from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider  # noqa: PLC0415 - see above

    provider = get_tracer_provider()
    if isinstance(provider, ProxyTracerProvider):
        return UNTRACED
    from driver.engine import tracing  # noqa: PLC0415 - see above

    transports: dict[str, tracing.Transport] = {}
    for name, table in config.providers.items():
        match table:
            case McpProviderTable(url=url):
                transports[name] = tracing.MCP_STDIO if url is None else tracing.MCP_HTTP
            case HttpProviderTable():
                transports[name] = tracing.HTTP
            case CommandProviderTable():
                transports[name] = tracing.PROGRAM
    return tracing.OpenTelemetry(provider, transports, software.rpartition("/")[2])


def spool(config: Config) -> Path:
    """Return the folder where the attempts of all command providers keep their records."""
    return config.driver.state_dir / "spool"


def _command_settings(name: str, table: CommandProviderTable, config: Config) -> CommandSettings:
    return CommandSettings(
        name=name,
        programs={tool: _program(declared) for tool, declared in table.tools.items()},
        spool=spool(config),
        cwd=table.cwd or config.work_dir,
        # where a program runs that names no folder, and whose provider names none, needs no declaration
        roots=table.roots if table.roots and table.cwd else (*table.roots, config.work_dir),
        env=table.env,
        env_files=table.env_files,
        key=parse_key_carrier(table.key),
    )


def _program(tool: CommandToolTable) -> Program:
    return Program.declared(
        tool.argv,
        cwd=tool.cwd,
        stdin=tool.stdin,
        output_bytes_max=tool.output_max_bytes,
        ok_exit_codes=tool.ok_exit_codes,
        evidence=tool.evidence,
    )


def _http_settings(name: str, table: HttpProviderTable) -> HttpProviderSettings:
    return HttpProviderSettings(
        name=name,
        base_url=table.base_url,
        endpoints={tool: _endpoint(declared) for tool, declared in table.tools.items()},
        key=parse_key_carrier(table.key),
        env=table.env,
        env_files=table.env_files,
        late_result_s=table.late_result_s,
        answer_max_bytes=table.answer_max_bytes,
    )


def _endpoint(tool: HttpToolTable) -> Endpoint:
    return Endpoint.declared(
        method=tool.method,
        path=tool.path,
        query=tool.query,
        headers=tool.headers,
        body=tool.json_body,
        ok_status=tool.ok_status,
    )


def _mcp_settings(name: str, table: McpProviderTable, config: Config) -> McpSettings:
    if address := table.url or table.url_file:
        server: StdioServer | HttpServer = HttpServer(url=address, header_files=table.header_files)
    else:
        assert table.argv is not None, "the configuration has one of argv, url and url_file"
        server = StdioServer(
            argv=table.argv,
            cwd=table.cwd or config.work_dir,
            env=table.env,
            env_files=table.env_files,
            log_stderr=not any(tool.redact for tool in table.tools.values()),
        )
    return McpSettings(
        name=name,
        server=server,
        key=parse_key_carrier(table.key),
        late_result_s=table.late_result_s,
        answer_max_bytes=table.answer_max_bytes,
        trust_annotations=table.trust_annotations,
    )
