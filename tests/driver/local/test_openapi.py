"""The document about the API is true: of every answer that it gives, whatever it is asked."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# schemathesis leaves the type of a body open

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from anyio import to_thread
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from driver.local.app import ENDPOINTS
from driver.local.errors import Code
from driver.local.openapi import OF_ANY, OF_WRITES, document
from driver.local.published import Published
from store.events import LateResult, OperationDiverged, OperationProbed
from store.lifecycle import Effect
from store.records import RunId
from store.transaction import Transaction
from tests.driver.engine.rig import ScriptedProvider, call
from tests.driver.local.stage import serving
from tests.driver.local.test_reads import _live
from tests.driver.local.world import World, end, operation_id, served

pytestmark = pytest.mark.anyio

DOCUMENT = document(ENDPOINTS)
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
EXAMPLES = 6
"""Requests of each kind (valid, and not) to each operation: hundreds in all."""
LEFT_OUT = {"/v1/backup", "/v1/drain"}
"""One writes where it is told, the other ends the daemon."""


@dataclass(frozen=True)
class Known:
    """What there is to be asked about."""

    operations: tuple[str, ...]
    commands: tuple[str, ...]
    runs: tuple[str, ...] = ("run-0", "run-1", "run-2")
    seqs: tuple[str, ...] = ("2", "3", "9")

    def of(self, name: str) -> tuple[str, ...]:
        """Return ids for one parameter of a path."""
        return {
            "operation_id": self.operations,
            "command_id": self.commands,
            "run_id": self.runs,
            "seq": self.seqs,
        }[name]


async def populate(world: World) -> Known:
    """A history with every kind of end, and a word of every kind."""
    commands = [f"old-{number}" for number in range(10)]
    for number, command in enumerate(commands):
        await world.journal.transact(partial(_live, command=command, run=f"run-{number % 3}", number=number))

    def tell(tx: Transaction) -> None:
        command, run = commands[1], "run-1"
        end(tx, command, run, OperationProbed(verdict="undetermined", matches=None, detail=None))
        late = LateResult(attempt=1, effect=Effect.OCCURRED, result=7, receipt={"id": 7})
        end(tx, command, run, late)
        end(tx, command, run, OperationDiverged(evidence=(3, 4), detail="they differ"))
        tx.park(2, "invalid", "because")
        tx.park(3, "retired", "because")
        tx.end_run(RunId("run-2"), "done")

    await world.journal.transact(tell)
    return Known(operations=tuple(map(operation_id, commands)), commands=tuple(commands))


def fuzz(socket: Path, known: Known, only: str = "") -> Counter[tuple[str, int]]:
    """Ask everything of everything; return the statuses of each path. Blocks."""
    api = schemathesis.openapi.from_dict(DOCUMENT)
    seen: Counter[tuple[str, int]] = Counter()
    transport = httpx2.HTTPTransport(uds=str(socket))
    with httpx2.Client(transport=transport, base_url="http://effectd", timeout=30, trust_env=False) as http:
        for result in api.get_all_operations():
            assert isinstance(result, Ok), "the document is valid"
            operation: Any = result.ok()
            if operation.path in LEFT_OUT or not operation.path.startswith(only):
                continue
            for mode in GenerationMode:
                _fuzz_one(partial(_exchange, http, seen), operation, mode, known)
    return seen


def _exchange(http: httpx2.Client, seen: Counter[tuple[str, int]], case: Any) -> None:  # noqa: ANN401 - partial types
    response = request(http, case)
    seen[case.operation.path, response.status_code] += 1
    case.validate_response(response, checks=CHECKS)


def _fuzz_one(ask: Callable[[Any], None], operation: Any, mode: GenerationMode, known: Known) -> None:  # noqa: ANN401 - partial types

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(data=st.data())
    def ask_one(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        for name in case.path_parameters or {}:
            if data.draw(st.booleans()):
                case.path_parameters[name] = data.draw(st.sampled_from(known.of(name)))
        if "follow" in (case.query or {}):
            case.query["follow"] = False  # it would last for ever
        ask(case)

    try:  # noqa: SIM105 - from Python 3.12 on, `suppress` takes a group of failures apart
        ask_one()
    except Unsatisfiable:  # nothing about some requests can be wrong
        pass


def request(http: httpx2.Client, case: Any) -> httpx2.Response:  # noqa: ANN401 - partial types
    """Send a case over the socket."""
    given = case.as_transport_kwargs(base_url="http://effectd")
    body = given.get("data")
    return http.request(
        given["method"],
        given["url"],
        params=given.get("params"),
        headers=dict(given.get("headers") or {}),
        json=given.get("json"),
        content=body if isinstance(body, (str, bytes)) else None,
    )


async def test_no_answer_is_one_that_the_document_does_not_know(tmp_path: Path) -> None:
    """Whatever is asked, valid or not: a documented status, type and shape, and never a bug."""
    async with serving(tmp_path, ScriptedProvider()) as (rig, world):
        world.fences = rig.engine.fences
        await rig.intake.deliver([call()])
        await rig.settled()
        known = await populate(world)
        seen = await to_thread.run_sync(fuzz, world.runtime_dir / "operator.sock", known)
    assert sum(seen.values()) > len(ENDPOINTS) * EXAMPLES
    assert {path for path, _ in seen} == {endpoint.path for endpoint in ENDPOINTS} - LEFT_OUT
    assert {200, 201, 202, 404, 409, 422} <= {status for _, status in seen}
    reads = {endpoint.path for endpoint in ENDPOINTS if endpoint.method == "GET"}
    assert {path for path in reads if not seen[path, 200]} == set()


async def test_an_answer_that_the_document_does_not_allow_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: of a document that says something else, the same requests find it."""
    monkeypatch.setitem(
        DOCUMENT["components"]["schemas"]["Status"]["properties"], "unsettled", {"type": "string"}
    )
    async with served(tmp_path) as world:
        known = await populate(world)
        with pytest.raises(FailureGroup, match="unsettled"):
            await to_thread.run_sync(fuzz, world.runtime_dir / "operator.sock", known, "/v1/status")


async def test_it_is_served(tmp_path: Path) -> None:
    """As the handlers are, on both sockets, and by the version that it names."""
    async with served(tmp_path) as world:
        response = await world.get("/v1/openapi.json")
        assert response.headers["content-type"] == "application/json"
        assert response.json() == json.loads(json.dumps(DOCUMENT))
    assert DOCUMENT["openapi"].startswith("3.1")


def test_every_code_can_be_expected_somewhere() -> None:
    """A refusal that no path declares would surprise whoever reads the document."""
    declared = {*OF_ANY, *OF_WRITES, *(code for endpoint in ENDPOINTS for code in endpoint.problems)}
    assert set(Code) - declared == {Code.METHOD_NOT_ALLOWED}


def test_every_answer_is_described() -> None:
    """No model is there that nothing answers with."""
    found: list[type] = [
        item for item in vars(sys.modules[Published.__module__]).values() if isinstance(item, type)
    ]
    models = {item.__name__ for item in found if item.__module__ == Published.__module__}
    assert models - set(DOCUMENT["components"]["schemas"]) <= {"Published", "Told", "Page"}
