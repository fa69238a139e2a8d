"""What a configured command provider is, as plain values.

Part of `driver.providers.command`; imports `driver.core`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from driver.core.contracts import KeyCarrier, NoKey
from driver.core.templates import Template
from store.records import JsonValue

OUTPUT_BYTES_MAX: Final = 1_048_576
"""The default of `output_max_bytes`: kept of each of the two outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One tool: the program, and how a call fills it in.

    `argv` yields a list of strings; `cwd` a path, relative to the provider's own; `stdin` a string, or any
    JSON value, which is then written as JSON. `output_bytes_max` holds for each of the two outputs.
    """

    argv: Template
    cwd: Template | None = None
    stdin: Template | None = None
    output_bytes_max: int = OUTPUT_BYTES_MAX
    ok_exit_codes: frozenset[int] = frozenset({0})
    evidence: Template | None = None
    """The command line of a program that only reads, for before and after the call."""

    @classmethod
    def declared(
        cls,
        argv: str | Sequence[str],
        *,
        cwd: str | None = None,
        stdin: JsonValue = None,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        ok_exit_codes: Sequence[int] = (0,),
        evidence: str | Sequence[str] | None = None,
    ) -> Self:
        """Return the tool of a declaration, as the configuration holds it. Raises `InvalidExpression`."""
        return cls(
            argv=_words(argv),
            cwd=None if cwd is None else Template(cwd),
            stdin=None if stdin is None else Template(stdin),
            output_bytes_max=output_bytes_max,
            ok_exit_codes=frozenset(ok_exit_codes),
            evidence=None if evidence is None else _words(evidence),
        )


def _words(declared: str | Sequence[str]) -> Template:
    return Template(declared if isinstance(declared, str) else list(declared))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """One provider of kind `command`.

    `spool` is the folder of all attempts' records, on a file system that survives a restart of the daemon.
    `cwd` is where programs run that name no folder; wherever they run, it lies within one of `roots`.
    """

    name: str
    programs: Mapping[str, Program]
    spool: Path
    cwd: Path
    roots: tuple[Path, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    env_files: Mapping[str, Path] = field(default_factory=dict[str, Path])
    key: KeyCarrier = field(default_factory=NoKey)
