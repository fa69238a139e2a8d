"""What a configured HTTP provider is, as plain values.

Part of `driver.providers.http`; imports `driver.core`, and never the HTTP library.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from driver.core.contracts import KeyCarrier, NoKey
from driver.core.templates import Template
from store.records import JsonValue

ANSWER_BYTES_MAX: Final = 8_388_608
"""The default of `answer_max_bytes`."""
LATE_RESULT_S: Final = 60.0
"""The default of `late_result_s`."""

_SUCCESS: Final = range(200, 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One tool: the request, and how a call fills it in.

    `ok_status` lists the statuses that are the call's own answer; empty, they are all that HTTP calls a
    success.
    """

    method: Template
    path: Template
    query: Mapping[str, Template] = field(default_factory=dict[str, Template])
    headers: Mapping[str, Template] = field(default_factory=dict[str, Template])
    body: Template | None = None
    ok_status: frozenset[int] = frozenset()

    @classmethod
    def declared(
        cls,
        *,
        method: str = "POST",
        path: str = "",
        query: Mapping[str, JsonValue] | None = None,
        headers: Mapping[str, str] | None = None,
        body: JsonValue = None,
        ok_status: Sequence[int] = (),
    ) -> Self:
        """Return the tool of a declaration, as the configuration holds it. Raises `InvalidExpression`."""
        return cls(
            method=Template(method),
            path=Template(path),
            query={name: Template(value) for name, value in (query or {}).items()},
            headers={name: Template(value) for name, value in (headers or {}).items()},
            body=None if body is None else Template(body),
            ok_status=frozenset(ok_status),
        )

    def answers_with(self, status: int) -> bool:
        """Whether a response of this status is the call's own answer."""
        return status in (self.ok_status or _SUCCESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """One provider of kind `http`. Sizes are bytes, durations seconds.

    `env`, and the content of the files that `env_files` names, is what expressions in headers see as `env`:
    a token stands in a file, which is read again for each request.
    """

    name: str
    base_url: str
    endpoints: Mapping[str, Endpoint]
    key: KeyCarrier = field(default_factory=NoKey)
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    env_files: Mapping[str, Path] = field(default_factory=dict[str, Path])
    late_result_s: float = LATE_RESULT_S
    answer_max_bytes: int = ANSWER_BYTES_MAX
