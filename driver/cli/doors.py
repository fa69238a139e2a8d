"""From a configuration file to an open door of the daemon that it belongs to, or to its file.

Part of `driver.cli`; imports `driver.config.load`, `driver.local.settings` and the client.
"""

import os
from pathlib import Path
from shlex import quote

from driver.cli.client import ANSWER_S, Door, LocalClient
from driver.cli.options import CONFIG_VARIABLE
from driver.config.load import load
from driver.config.models import Config
from driver.config.places import DEFAULT_PATH
from driver.local.settings import LocalSettings
from store.settings import JournalSettings


def inspect(config_file: Path, *, answer_s: float = ANSWER_S) -> LocalClient:
    """Return a client of the socket for reads. Raises `ConfigError`; connects when it is used."""
    door = Door(socket=_settings(config_file).inspect_socket, config=config_file)
    return LocalClient(door, answer_s=answer_s)


def operator(config_file: Path) -> LocalClient:
    """Return a client of the socket for everything. Raises `ConfigError`; connects when it is used."""
    return LocalClient(Door(socket=_settings(config_file).operator_socket, config=config_file))


def journal(config: Config) -> JournalSettings:
    """Return what a look at the file needs, where no daemon runs."""
    return JournalSettings(
        state_dir=config.driver.state_dir,
        runtime_dir=config.driver.runtime_dir,
        allow_network_fs=config.journal.allow_network_fs,
    )


def flags(config_file: Path) -> str:
    """Return what a suggested command needs to find the same daemon: nothing, or ` --config FILE`."""
    usual = Path(os.environ.get(CONFIG_VARIABLE) or DEFAULT_PATH)
    return "" if config_file == usual else f" --config {quote(str(config_file))}"


def _settings(config_file: Path) -> LocalSettings:
    return LocalSettings(runtime_dir=load(config_file).driver.runtime_dir)
