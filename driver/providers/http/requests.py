"""From a call to the request that is sent: method, target, headers and body, with the key where it belongs.

Part of `driver.providers.http`; imports its `settings`, `targets` and `errors`, `driver.core`, and the HTTP
library's values. Pure. No error quotes an argument or a variable of the environment.
"""

from collections.abc import Mapping
from importlib.metadata import version as version_of
from typing import Final

import httpx2

from driver.core.attempts import ToolCall
from driver.core.contracts import ArgumentKey, HeaderKey
from driver.core.expressions import EvaluationFailed
from driver.core.headers import METHODS, wrong_name, wrong_value
from driver.core.strictjson import dumps_compact
from driver.core.templates import Template, scope
from driver.providers.http.errors import InvalidArguments, Refused
from driver.providers.http.settings import Endpoint, HttpSettings
from driver.providers.http.targets import TARGET_CHARS_MAX, path_of, query_of, scope_of_path, text_of
from store.records import JsonObject, JsonValue

TOOLS_NAMED_MAX: Final = 20
"""Tools that the error about an unknown one names."""

_USUAL_HEADERS: Final = {
    "user-agent": f"effectd/{version_of('effectd')}",
    "accept": "application/json, */*;q=0.8",
    # these two a declaration cannot change: `wrong_name`
    "accept-encoding": "identity",
    "connection": "close",
}


def endpoint_of(settings: HttpSettings, call: ToolCall) -> Endpoint:
    """Return the tool that `call` names. Raises `Refused`."""
    endpoint = settings.endpoints.get(call.tool)
    if endpoint is not None:
        return endpoint
    names = sorted(settings.endpoints)
    known = ", ".join(names[:TOOLS_NAMED_MAX]) or "none"
    more = f" and {len(names) - TOOLS_NAMED_MAX} more" if len(names) > TOOLS_NAMED_MAX else ""
    message = f"provider {settings.name} declares no tool {call.tool!r}; its tools are: {known}{more}"
    raise Refused("unknown_tool", message)


def request_of(settings: HttpSettings, call: ToolCall, env: Mapping[str, str]) -> httpx2.Request:
    """Return the request of `call`. `env` is what expressions in headers see as `env`. Raises `Refused`."""
    endpoint = endpoint_of(settings, call)
    values = scope(call, _arguments(settings, call))
    body = None if endpoint.body is None else _filled("json", endpoint.body, values)
    headers = _headers(settings, endpoint, call, {**values, "env": dict(env)})
    if body is not None:
        headers.setdefault("content-type", "application/json")
    return httpx2.Request(
        _method(endpoint, values),
        _url(settings, endpoint, values),
        headers=headers,
        content=None if body is None else _json(body),
    )


def base_of(settings: HttpSettings) -> httpx2.URL:
    """Return the base URL. Raises `Refused` where it is none that a request could go to."""
    try:
        return httpx2.URL(settings.base_url)
    except httpx2.InvalidURL as error:
        raise Refused("connect_failed", f"the base_url of provider {settings.name}: {error}") from error


def _arguments(settings: HttpSettings, call: ToolCall) -> JsonObject:
    """Return the arguments as expressions see them. Callers may not supply the one that carries the key.

    Of a call that has none, all arguments are its own.
    """
    if not isinstance(settings.key, ArgumentKey) or call.key is None:
        return call.arguments
    name = settings.key.name
    if name in call.arguments:
        raise InvalidArguments(name, "it carries the idempotency key: callers must leave it out")
    return {**call.arguments, name: call.key}


def _filled(part: str, template: Template, values: JsonObject) -> JsonValue:
    try:
        return template.fill(values)
    except EvaluationFailed as error:
        raise InvalidArguments(part, str(error)) from error


def _method(endpoint: Endpoint, values: JsonObject) -> str:
    method = _filled("method", endpoint.method, values)
    if method not in METHODS:
        raise InvalidArguments("method", f"it must be one of {', '.join(METHODS)}")
    return str(method)


def _url(settings: HttpSettings, endpoint: Endpoint, values: JsonObject) -> httpx2.URL:
    base = base_of(settings)
    path = path_of(
        base.raw_path.decode().partition("?")[0], _filled("path", endpoint.path, scope_of_path(values))
    )
    query = query_of(
        {name: _filled(f"query.{name}", template, values) for name, template in endpoint.query.items()}
    )
    target = f"{path}?{query}" if query else path
    if len(target) > TARGET_CHARS_MAX:
        raise InvalidArguments("path", f"with its query it is longer than {TARGET_CHARS_MAX:,} characters")
    return base.copy_with(raw_path=target.encode())


def _headers(
    settings: HttpSettings, endpoint: Endpoint, call: ToolCall, values: JsonObject
) -> httpx2.Headers:
    """Return the headers. One whose value is null is left out."""
    headers = httpx2.Headers(_USUAL_HEADERS)
    if call.traceparent is not None:
        headers["traceparent"] = call.traceparent
    for name, template in endpoint.headers.items():
        value = _filled(f"headers.{name}", template, values)
        if value is not None:
            _set(headers, name, text_of(f"headers.{name}", value))
    if isinstance(settings.key, HeaderKey) and call.key is not None:
        _set(headers, settings.key.name, call.key)
    return headers


def _set(headers: httpx2.Headers, name: str, value: str) -> None:
    if wrong := wrong_name(name) or wrong_value(value):
        raise InvalidArguments(f"headers.{name}", wrong)
    headers[name] = value


def _json(body: JsonValue) -> bytes:
    try:
        return dumps_compact(body).encode()
    except ValueError:
        raise InvalidArguments("json", "it holds a number that is not finite") from None
