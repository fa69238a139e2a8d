"""Probes of an HTTP API, behind the real daemon: found by key, not found, in error, and too late."""

import json
from collections.abc import Callable

import anyio
import pytest
from anyio.abc import AnyByteStream

from store.records import JsonValue
from tests.driver.providers.http.site import Request, Script, Site, http, site
from tests.system.history import Json
from tests.system.plane import ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Sandbox, sandbox
from tests.system.test_verdicts import command, said
from tests.system.zygote import Zygote

pytestmark = pytest.mark.anyio

Answer = Callable[[list[str], Request], bytes]


def found(keys: list[str], request: Request) -> bytes:
    """Answer with the orders that carry the key that is asked for."""
    marker = request.target.partition("marker=")[2]
    orders: list[JsonValue] = [key for key in keys if key == marker]
    return http(200, json.dumps({"orders": orders}).encode())


def by_status(keys: list[str], request: Request) -> bytes:
    """Answer whether there is such an order with a status alone."""
    marker = request.target.partition("marker=")[2]
    return http(200 if marker in keys else 404, b"{}")


def never(keys: list[str], request: Request) -> bytes:
    """Answer that the search is down."""
    del keys, request
    return http(404, b'{"orders": []}')


def shop(answer: Answer, *, takes: bool = True, wait: bool = False) -> Script:
    """An API whose orders are taken and never answered, and which can be asked for them."""
    keys: list[str] = []

    async def script(here: Site, stream: AnyByteStream, request: Request) -> None:
        if request.method == "POST":
            if takes:
                keys.append(request.headers["idempotency-key"])
            await stream.aclose()
            return
        if wait and not await here.told_to_go_on(stream):
            return
        await stream.send(answer(keys, request))

    return script


def configure(made: Sandbox, port: int, *, find: Json | None = None, **probe: object) -> None:
    """Declare the order, and the read that finds it."""
    made.configure(
        providers__shop={
            "kind": "http",
            "base_url": f"http://127.0.0.1:{port}/v1",
            "key": "header:Idempotency-Key",
            "late_result_s": 30,
        },
        providers__shop__tools__order={"path": "/orders"},
        providers__shop__tools__order__probe={
            "tool": "find",
            "matches": "length(result.json.orders)",
            "visible_after_s": 0,
            "attempts": 1,
            "authoritative_absence": True,
            **probe,
        },
        providers__shop__tools__order__probe__arguments={"marker": "=key"},
        providers__shop__tools__find={"effect": "read", "method": "GET", "path": "/orders", **(find or {})},
        providers__shop__tools__find__query={"marker": "=arguments.marker"},
    )


async def looked(plane: ScriptedPlane) -> Json:
    """The first look at the one operation, once it is there."""
    await plane.until(lambda: said(plane, "operation.probed"))
    found: Json = said(plane, "operation.probed")[0]["data"]
    return found


@pytest.mark.parametrize(
    ("answer", "takes", "verdict"),
    [(found, True, "occurred"), (found, False, "absent"), (never, False, "undetermined")],
    ids=["there", "not there", "an error"],
)
async def test_an_order_whose_answer_was_lost_is_looked_for(
    zygote: Zygote, answer: Answer, verdict: str, *, takes: bool
) -> None:
    """By the key that it went out with; the read itself carries none. A 404 is an error, and no zero."""
    async with (
        site(shop(answer, takes=takes)) as api,
        scripted_plane() as plane,
        sandbox(zygote, plane) as made,
    ):
        configure(made, api.port)
        life = made.start()
        await plane.give(call("cmd-1", "shop/order"))
        receipt = await plane.receipt_of("cmd-1")
        assert receipt["data"]["reason"] == "connection_lost"
        assert (await looked(plane))["verdict"] == verdict
        status = await made.status()
        assert status["unsettled"] == (verdict == "undetermined")
        assert await life.stop() == 0
        order, look = api.requests
        assert look.target == f"/v1/orders?marker={receipt['operation_id']}"
        assert order.headers["idempotency-key"] == receipt["operation_id"]
        assert "idempotency-key" not in look.headers


@pytest.mark.parametrize(("takes", "verdict"), [(True, "occurred"), (False, "absent")])
async def test_a_status_can_be_the_answer(zygote: Zygote, verdict: str, *, takes: bool) -> None:
    """Where the contract says so: then a 404 is what the API answers to a key that it does not know."""
    async with (
        site(shop(by_status, takes=takes)) as api,
        scripted_plane() as plane,
        sandbox(zygote, plane) as made,
    ):
        configure(made, api.port, find={"ok_status": [200, 404]}, matches="result.status == `200`")
        life = made.start()
        await plane.give(call("cmd-1", "shop/order"))
        assert (await looked(plane))["verdict"] == verdict
        assert await life.stop() == 0


async def test_what_a_look_is_told_too_late_lands_nowhere(zygote: Zygote) -> None:
    """It would say `absent`; nobody waits for it any more, and it is no answer to the operation."""
    async with (
        site(shop(found, takes=False, wait=True)) as api,
        scripted_plane() as plane,
        sandbox(zygote, plane) as made,
    ):
        configure(made, api.port, find={"execution_s": 0.5})
        life = made.start()
        await plane.give(call("cmd-1", "shop/order"))
        look = await looked(plane)
        assert (look["verdict"], look["matches"]) == ("undetermined", None)
        assert "no answer" in look["detail"]
        api.go_on.set()
        await api.until(lambda here: here.gone == len(api.requests))
        operation_id = (await plane.receipt_of("cmd-1"))["operation_id"]
        await plane.give(
            command("n-1", "operation.annotate", operation_id=operation_id, metadata={"id": "7"})
        )
        await plane.receipt_of("n-1")
        kinds = {event["kind"] for event in plane.history.events() if event["operation_id"] == operation_id}
        assert "operation.late_result" not in kinds
        assert "operation.reconciled" not in kinds
        assert (await made.status())["unsettled"] == 1
        with anyio.fail_after(60):
            assert await life.stop() == 0
