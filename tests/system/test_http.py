"""An HTTP API behind the real daemon: one call through the journal, killed, refused, in flight, late."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.driver.providers.http.site import http, says, site, slowly
from tests.system.campaign import KILLED
from tests.system.history import Json
from tests.system.plane import ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Sandbox, sandbox
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.lane]

ORDER = "shop/order"


def shop(made: Sandbox, port: int, **tool: object) -> None:
    """Configure the API: one write, whose key travels as a header."""
    base: Mapping[str, Any] = {
        "kind": "http",
        "base_url": f"http://127.0.0.1:{port}/v1",
        "key": "header:Idempotency-Key",
        "late_result_s": 30,
    }
    order = {"path": "=['orders', arguments.id]", "receipt": "result.json.id", **tool}
    made.configure(
        providers__shop=base,
        providers__shop__tools__order=order,
        providers__shop__tools__order__json={"n": "=arguments.n"},
    )


def events_of(plane: ScriptedPlane, command_id: str) -> list[Json]:
    """Return what the plane knows of a command, in order."""
    return [event for event in plane.history.events() if event["command_id"] == command_id]


async def test_a_call_goes_through_the_journal_and_is_sent_once(zygote: Zygote) -> None:
    """Intent, request, answer, receipt; a redelivery repeats the receipt, and sends nothing."""
    async with site(says(http(201))) as api, scripted_plane() as plane, sandbox(zygote, plane) as made:
        shop(made, api.port)
        life = made.start()
        await plane.give(call("cmd-1", ORDER, id="a/b", n=1))
        receipt = await plane.receipt_of("cmd-1")
        assert receipt["kind"] == "operation.succeeded"
        assert receipt["data"]["receipt"] == 7
        assert (receipt["data"]["result"]["status"], receipt["data"]["result"]["json"]) == (201, {"id": 7})
        assert [event["kind"] for event in events_of(plane, "cmd-1")] == [
            "command.accepted",
            "operation.started",
            "operation.succeeded",
        ]
        started = events_of(plane, "cmd-1")[1]["data"]
        assert (started["key_carrier"], started["attempt"]) == ("header:Idempotency-Key", 1)
        await plane.redeliver("cmd-1")
        await plane.until(lambda: len(plane.kinds("cmd-1")) > 1)
        assert await life.stop() == 0
        (request,) = api.requests
        assert (request.method, request.target, request.body) == ("POST", "/v1/orders/a%2Fb", b'{"n":1}')
        assert request.headers["idempotency-key"] == receipt["operation_id"]


@pytest.mark.kill
@pytest.mark.parametrize(
    ("kill_at", "requests", "ending"),
    [
        ("dispatch.prepared", 1, "operation.succeeded"),
        ("dispatch.intent_committed", 0, "operation.unknown"),
        ("dispatch.before_call", 0, "operation.unknown"),
        ("dispatch.answered", 1, "operation.unknown"),
        ("dispatch.outcome_committed", 1, "operation.succeeded"),
    ],
)
async def test_a_kill_never_sends_a_call_twice(
    zygote: Zygote, kill_at: str, requests: int, ending: str
) -> None:
    """Before the intent the call runs after the restart; behind it, nothing sends it again."""
    async with site(says(http())) as api, scripted_plane() as plane, sandbox(zygote, plane) as made:
        shop(made, api.port)
        await plane.give(call("cmd-1", ORDER, id="1", n=1))
        assert await made.start(kill_at=kill_at).exit_code() == KILLED
        life = made.start()
        receipt = await plane.receipt_of("cmd-1")
        assert receipt["kind"] == ending
        assert await life.stop() == 0
        assert len(api.requests) == requests


async def test_an_api_that_is_down_leaves_no_attempt(zygote: Zygote) -> None:
    """The connection fails before the intent: provably nothing happened, and nothing was intended."""
    async with site(says()) as api:
        port = api.port
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        shop(made, port)
        life = made.start()
        await plane.give(call("cmd-1", ORDER, id="1", n=1), call("cmd-2", ORDER, id="..", n=2))
        receipt = await plane.receipt_of("cmd-1")
        assert (receipt["kind"], receipt["data"]["reason"]) == ("operation.not_executed", "connect_failed")
        receipt = await plane.receipt_of("cmd-2")
        assert receipt["data"]["reason"] == "invalid_arguments"
        kinds = {event["kind"] for event in plane.history.events()}
        assert "operation.started" not in kinds
        assert await life.stop() == 0


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (409, "operation.failed", "idempotency_key_in_flight"),
        (422, "operation.failed", "idempotency_key_reused"),
        (404, "operation.failed", "http_404"),
        (503, "operation.failed", "http_503"),
        (504, "operation.unknown", "gateway_error"),
        (307, "operation.unknown", "redirected"),
    ],
)
async def test_a_status_is_classified_by_the_table(zygote: Zygote, status: int, kind: str, code: str) -> None:
    """With `error_means = "none"`: only the statuses that are the provider's plain word prove anything."""
    answer = http(status, b'{"title": "about your Idempotency-Key"}', location="/elsewhere")
    async with site(says(answer)) as api, scripted_plane() as plane, sandbox(zygote, plane) as made:
        shop(made, api.port, error_means="none")
        life = made.start()
        await plane.give(call("cmd-1", ORDER, id="1", n=1))
        receipt = await plane.receipt_of("cmd-1")
        assert receipt["kind"] == kind
        if kind == "operation.failed":
            assert receipt["data"]["error"]["code"] == code
            assert receipt["data"]["effect"] == ("none" if status in {422, 404} else "unknown")
            assert receipt["data"]["result"]["status"] == status
        else:
            assert receipt["data"]["reason"] == code
        assert await life.stop() == 0
        assert len(api.requests) == 1


async def test_an_answer_after_the_deadline_reaches_the_plane(zygote: Zygote) -> None:
    """`unknown/execution_timeout`, and then the late result, which is an answer."""
    async with site(slowly(b"", http())) as api, scripted_plane() as plane, sandbox(zygote, plane) as made:
        shop(made, api.port, execution_s=2.0)
        life = made.start()
        await plane.give(call("cmd-1", ORDER, id="1", n=1))
        receipt = await plane.receipt_of("cmd-1")
        assert (receipt["kind"], receipt["data"]["reason"]) == ("operation.unknown", "execution_timeout")
        assert receipt["data"]["phase"] == "written"
        api.go_on.set()
        await plane.until(lambda: events_of(plane, "cmd-1")[-1]["kind"] == "operation.late_result")
        late = events_of(plane, "cmd-1")[-1]["data"]
        assert (late["effect"], late["receipt"]) == ("occurred", 7)
        assert await life.stop() == 0


async def test_a_call_is_cancelled_by_hanging_up(zygote: Zygote) -> None:
    """After the first byte: the connection is closed, and the outcome stays honest."""
    async with site(slowly(b"", http())) as api, scripted_plane() as plane, sandbox(zygote, plane) as made:
        shop(made, api.port)
        life = made.start()
        await plane.give(call("cmd-1", ORDER, id="1", n=1))
        await api.until(lambda api: len(api.requests) == 1)
        cancel = {"command_id": "cancel-1", "run_id": "run-1", "kind": "command.cancel"}
        await plane.give({"type": "command", **cancel, "data": {"target_command_id": "cmd-1"}})
        receipt = await plane.receipt_of("cmd-1")
        assert receipt["data"]["reason"] == "cancelled_after_dispatch"
        await api.until(lambda api: api.gone == 1)
        assert await life.stop() == 0
