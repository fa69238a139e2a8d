"""`[supervisor]`, as the supervisor and its model are told it."""

from pathlib import Path
from typing import cast

import pytest

from driver.config.load import parse
from driver.config.models import Config
from driver.triage import model, settings
from supervisor.models.chat import ChatModel
from supervisor.models.command import Program
from supervisor.models.post import Endpoint
from supervisor.triage import Settings


def parsed(text: str) -> Config:
    """Return the configuration that `text` is."""
    return parse(f'[driver]\nstate_dir = "/state"\n[supervisor]\n{text}', Path("/etc/effectd/effectd.toml"))


def endpoint(text: str) -> Endpoint:
    """Return where the model of a configuration is asked."""
    chat = cast("ChatModel", model(parsed(text), {}))._chat
    return cast("Endpoint", vars(chat)["_endpoint"])


def test_each_bound_reaches_the_loop() -> None:
    """Under the names of the configuration."""
    text = "interval_s = 2\nmax_attempts = 5\nwall_max_bytes = 9_000\nmin_age_s = 0\n"
    told = Settings(interval_s=2.0, max_attempts=5, wall_bytes_max=9_000, min_age_s=0.0)
    assert settings(parsed(text).supervisor) == told


def test_without_a_word_the_rules_decide() -> None:
    """Offline, at no cost."""
    found = model(parsed(""), {})
    assert (found.name, found.is_paid) == ("rules", False)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ('model = "openai"', "https://api.openai.com/v1/chat/completions"),
        (
            'model = "openai"\nbase_url = "http://127.0.0.1:8000/v1/"',
            "http://127.0.0.1:8000/v1/chat/completions",
        ),
        ('model = "anthropic"\napi_key_file = "key"', "https://api.anthropic.com/v1/messages"),
        ('model = "anthropic"\napi_key_file = "key"\nbase_url = "https://h/a"', "https://h/a/v1/messages"),
    ],
)
def test_a_remote_model_is_asked_where_its_api_is(text: str, url: str) -> None:
    """Its own address unless another one is given, with the path of the API behind it."""
    found = endpoint(f'{text}\nmodel_name = "m-1"\ntimeout_s = 7\n')
    assert (found.url, found.model_name, found.timeout_s) == (url, "m-1", 7.0)
    assert found.key_file == (Path("/etc/effectd/key") if "key" in text else None)


def test_a_program_runs_in_the_work_folder_with_a_few_variables() -> None:
    """Where programs run that name no folder; a secret of the daemon's own environment stays there."""
    environment = {"PATH": "/bin", "OPENAI_API_KEY": "canary"}
    found = model(parsed('model = "command"\nargv = ["triage", "--fast"]\ntimeout_s = 7\n'), environment)
    assert (found.name, found.is_paid) == ("command", True)
    chat = vars(cast("ChatModel", found)._chat)
    assert chat["_program"] == Program(argv=("triage", "--fast"), cwd=Path("/state/work"), timeout_s=7.0)
    assert chat["_environment"] == {"PATH": "/bin"}
