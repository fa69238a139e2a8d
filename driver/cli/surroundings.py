"""What a valid configuration names on this machine, and is not there; and what of it has no effect.

Part of `driver.cli`; imports the configuration's models. These are warnings: a file may come later, a
program may be found by the daemon's own user only, and neither is read here.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from driver.config.errors import TablePath, toml_name
from driver.config.models import Config, ControlTable
from driver.config.providers import McpProviderTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """A key whose file, folder or program is not there for whoever runs the check, or that does nothing.

    Without a key it is the whole table.
    """

    table: TablePath
    key: str | None
    message: str

    def __str__(self) -> str:
        where = f"[{toml_name(self.table)}]"
        return f"{where} {self.key}: {self.message}" if self.key else f"{where}: {self.message}"


def warnings(config: Config) -> Iterator[Warned]:
    """Yield one warning for each part of `config` that cannot be used from here."""
    for table, key, path in _files(config):
        if message := _file_problem(path):
            yield Warned(table=table, key=key, message=message)
    for name, provider in config.providers.items():
        if isinstance(provider, McpProviderTable):
            yield from _program(("providers", name), provider, config.work_dir)


def _files(config: Config) -> Iterator[tuple[TablePath, str, Path]]:
    if config.control:
        for key in ("token_file", "ca_file", "client_cert_file", "client_key_file"):
            if path := _control_file(config.control, key):
                yield ("control",), key, path
    if config.supervisor.api_key_file is not None:
        yield ("supervisor",), "api_key_file", config.supervisor.api_key_file
    for name, provider in config.providers.items():
        for variable, path in provider.env_files.items():
            yield ("providers", name), f"env_files.{variable}", path
        if isinstance(provider, McpProviderTable):
            yield from ((("providers", name), key, path) for key, path in _address_files(provider))


def _address_files(provider: McpProviderTable) -> Iterator[tuple[str, Path]]:
    if provider.url_file is not None:
        yield "url_file", provider.url_file
    for header, path in provider.header_files.items():
        yield f"header_files.{header}", path


def _control_file(control: ControlTable, key: str) -> Path | None:
    path: object = getattr(control, key)
    return path if isinstance(path, Path) else None


def _file_problem(path: Path) -> str | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return f"there is no file {path}"
    except OSError as error:
        return f"{path} cannot be looked at: {error.strerror}"
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is no file"
    if not os.access(path, os.R_OK):
        return f"{path} may not be read by user {os.geteuid()}: may the daemon's user?"
    return None if status.st_size else f"{path} is empty"


def _program(table: TablePath, provider: McpProviderTable, work_dir: Path) -> Iterator[Warned]:
    """The daemon makes its own `work/`; a folder that somebody named must be there."""
    if provider.argv is None:
        return
    folder = provider.cwd or work_dir
    if provider.cwd and not os.path.isdir(folder):  # noqa: PTH112 a folder out of sight is no crash
        yield Warned(table=table, key="cwd", message=f"there is no folder {folder}")
    program = provider.argv[0]
    found = shutil.which(folder / program) if "/" in program else shutil.which(program)
    if found is None:
        yield Warned(table=table, key="argv", message=f"there is no program {program}: its calls will fail")
