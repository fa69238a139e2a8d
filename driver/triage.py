"""Maps `[supervisor]` to what the supervisor is told, and builds the model that it asks.

Part of `driver`, beside `driver.assembly`; imports the configuration, `supervisor`, and what keeps programs.
What only a model behind an API needs is imported only where there is one: the HTTP library costs a start a
third of a second.
"""

import errno
import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

from driver.config.models import Config, SupervisorTable
from driver.providers.command import leash
from driver.providers.command.errors import Refused
from driver.providers.command.launch import path_of
from driver.providers.command.shim.words import Command
from driver.providers.command.zygote import Zygote
from supervisor.models.chat import ChatModel
from supervisor.models.command import CommandChat, Program
from supervisor.models.model import Chat, Model
from supervisor.models.rules import RulesModel
from supervisor.triage import Settings

if TYPE_CHECKING:
    from supervisor.models.post import Endpoint


def settings(table: SupervisorTable) -> Settings:
    """Return how often the supervisor looks, and what it may cost."""
    return Settings(
        interval_s=table.interval_s,
        max_attempts=table.max_attempts,
        wall_bytes_max=table.wall_max_bytes,
        min_age_s=table.min_age_s,
    )


def model(config: Config, environment: Mapping[str, str]) -> Model:
    """Return whom the supervisor asks. A program gets a few variables of `environment`."""
    table = config.supervisor
    if table.model == "rules":
        return RulesModel()
    if table.model == "command":
        assert table.argv is not None, "the configuration has it with this model"
        program = Program(argv=table.argv, cwd=config.work_dir, timeout_s=table.timeout_s)
        return ChatModel(CommandChat(program, environment, on_leash))
    return ChatModel(_remote(table))


def on_leash(
    program: Program, env: Mapping[str, str], stdin: bytes
) -> AbstractAsyncContextManager[leash.Leash]:
    """Start a triage program, of which nothing is left after the block: a `Start`."""
    return leash.leashed(partial(_started, program, env, stdin))


def _started(program: Program, env: Mapping[str, str], stdin: bytes) -> leash.Leash:
    """Start it by a zygote of its own: a question costs more than an interpreter. Blocks."""
    zygote = Zygote()
    folder = os.open(program.cwd, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        path = path_of(program.argv[0], folder, env)
        command = Command(program=path, argv=list(program.argv), env=dict(env))
        return leash.start(zygote, command, folder, stdin, both=False)
    except Refused as refused:
        raise OSError(errno.ENOENT, str(refused)) from refused
    finally:
        os.close(folder)
        zygote.close()


def _remote(table: SupervisorTable) -> Chat:
    from supervisor.models import anthropic, openai  # noqa: PLC0415 - see the module's docstring

    if table.model == "openai":
        return openai.OpenAiChat(_endpoint(table, openai.BASE_URL, openai.PATH))
    return anthropic.AnthropicChat(_endpoint(table, anthropic.BASE_URL, anthropic.PATH))


def _endpoint(table: SupervisorTable, base_url: str, path: str) -> "Endpoint":
    from supervisor.models.post import Endpoint  # noqa: PLC0415 - likewise

    assert table.model_name is not None, "the configuration has it with this model"
    return Endpoint(
        url=(table.base_url or base_url).rstrip("/") + path,
        model_name=table.model_name,
        key_file=table.api_key_file,
        timeout_s=table.timeout_s,
    )
