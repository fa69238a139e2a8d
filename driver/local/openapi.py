"""The local API as an OpenAPI 3.1 document, made of the endpoints that are served.

Part of `driver.local`, pure; imports pydantic and its own siblings. Nothing is stated here twice: paths,
parameters, bodies and answers come from the endpoints, statuses from the codes.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final, TypeAlias

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from driver.local.endpoints import Answer, Endpoint
from driver.local.errors import Code, status_of
from driver.local.problems import PROBLEM_JSON
from driver.local.published import ProblemDetails

Schema: TypeAlias = dict[str, Any]

JSON: Final = "application/json"
OF_ANY: Final = (
    Code.INVALID_REQUEST,
    Code.BROWSER_REQUEST,
    Code.NO_SUCH_PATH,
    Code.INVALID_QUERY,
    Code.TOO_MANY_REQUESTS,
    Code.INTERNAL,
    Code.BUSY,
    Code.JOURNAL_STOPPED,
)
"""What any request may be refused with."""
OF_WRITES: Final = (Code.READ_ONLY_SOCKET, Code.REQUEST_TIMEOUT, Code.BODY_TOO_LARGE, Code.INVALID_BODY)

_References: TypeAlias = dict[tuple[str, JsonSchemaMode], Schema]

_REF: Final = "#/components/schemas/{model}"
_ABOUT: Final = (
    "HTTP/1.1 over Unix sockets: `inspect.sock` serves the reads, `operator.sock` everything. "
    "See docs/local-api.md."
)


def document(endpoints: Iterable[Endpoint]) -> Schema:
    """Return the document about these endpoints."""
    served = tuple(endpoints)
    found, definitions = models_json_schema([*_models(served)], ref_template=_REF)
    references: _References = {(str(model), mode): shape for (model, mode), shape in found.items()}
    paths: dict[str, Schema] = defaultdict(dict)
    for endpoint in served:
        paths[endpoint.path][endpoint.method.lower()] = _operation(endpoint, references)
    return {
        "openapi": "3.1.0",
        "info": {"title": "effectd", "version": version("effectd"), "description": _ABOUT},
        "servers": [{"url": "http://effectd"}],
        "paths": dict(paths),
        "components": {"schemas": definitions.get("$defs", {})},
    }


def _models(endpoints: Iterable[Endpoint]) -> Iterator[tuple[type[BaseModel], JsonSchemaMode]]:
    yield ProblemDetails, "serialization"
    for endpoint in endpoints:
        if endpoint.body is not None:
            yield endpoint.body, "validation"
        for answer in endpoint.answers.values():
            if isinstance(answer, type):
                yield answer, "serialization"


def _operation(endpoint: Endpoint, references: _References) -> Schema:
    made: Schema = {
        "operationId": f"{endpoint.method.lower()}{re.sub(r'[^a-z0-9]+', '_', endpoint.path.lower())}",
        "summary": endpoint.summary,
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint)],
        "responses": {
            **_answers(endpoint, references),
            **_problems(endpoint, references),
        },
    }
    if endpoint.body is not None:
        needed = any(item.is_required() for item in endpoint.body.model_fields.values())
        content = {JSON: {"schema": references[str(endpoint.body), "validation"]}}
        made["requestBody"] = {"required": needed, "content": content}
    return made


def _path_parameters(endpoint: Endpoint) -> Iterator[Schema]:
    for name in re.findall(r"\{([a-z_]+)\}", endpoint.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameters(endpoint: Endpoint) -> Iterator[Schema]:
    made = endpoint.query.model_json_schema()
    definitions: Schema = made.get("$defs", {})
    for name, shape in made.get("properties", {}).items():
        yield {"name": name, "in": "query", "required": False, "schema": _given(shape, definitions)}


def _given(shape: Schema, definitions: Schema) -> Schema:
    """Return what a parameter may be where it is given: it is left out, and never null."""
    arms = [arm for arm in shape.get("anyOf", [shape]) if arm.get("type") != "null"]
    found: Schema = {**shape, **arms[0]}
    if "$ref" in found:
        found |= definitions[found.pop("$ref").rpartition("/")[2]]
    return {
        key: value
        for key, value in found.items()
        if key not in ("anyOf", "title", "description") and not (key == "default" and value is None)
    }


def _answers(endpoint: Endpoint, references: _References) -> Schema:
    return {
        str(status.value): _answer(status, answer, references) for status, answer in endpoint.answers.items()
    }


def _answer(status: HTTPStatus, answer: Answer, references: _References) -> Schema:
    content: Schema
    if isinstance(answer, type):
        content = {JSON: {"schema": references[str(answer), "serialization"]}}
    else:
        kinds = (answer,) if isinstance(answer, str) else answer
        content = {kind: {"schema": {"type": "string"}} for kind in kinds}
    return {"description": status.phrase, "content": content}


def _problems(endpoint: Endpoint, references: _References) -> Schema:
    by_status: dict[HTTPStatus, list[Code]] = defaultdict(list)
    for code in (*OF_ANY, *(OF_WRITES if endpoint.method == "POST" else ()), *endpoint.problems):
        by_status[status_of(code)].append(code)
    content = {PROBLEM_JSON: {"schema": references[str(ProblemDetails), "serialization"]}}
    return {
        str(status.value): {"description": ", ".join(f"`{code}`" for code in codes), "content": content}
        for status, codes in sorted(by_status.items())
    }
