"""The plane's HTTP API: what it takes, what it refuses, and what it tells."""

import json
from typing import Any

import anyio
import pytest

from tests.driver.plane.world import NOTE, UNKNOWN, Driver, Plane, client

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("token", "status"), [("driver-secret", 403), ("", 401)])
async def test_only_the_operators_token_opens_the_api(plane: Plane, token: str, status: int) -> None:
    """A sandbox, which has the drivers' token, must not command others: not even read."""
    async with client(plane.url, token) as stranger:
        for path in ("/v1/commands", "/v1/nothing", "/openapi.json"):
            answer = await stranger.get(path)
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/problem+json"


async def test_giving_a_command_twice_is_giving_it_once(plane: Plane) -> None:
    """The same id with the same content is known (1 and 1.0 are one number); other content is a conflict."""
    data: dict[str, Any] = {"tool": "a/b", "arguments": {"n": 1}}
    first = await plane.send(command_id="c", data=data)
    assert (
        await plane.send(status=200, command_id="c", data={"tool": "a/b", "arguments": {"n": 1.0}}) == first
    )
    others: list[dict[str, Any]] = [
        {"data": {"tool": "a/b", "arguments": {"n": True}}},
        {"data": data, "run_id": "run-2"},
    ]
    for other in others:
        problem = await plane.send(status=409, command_id="c", **other)
        assert problem["code"] == "conflict"
    assert len((await plane.get("/v1/commands"))["items"]) == 1


async def test_an_id_is_made_where_none_is_given(plane: Plane) -> None:
    """And it is one that a daemon takes."""
    views = [await plane.send() for _ in range(2)]
    assert len({view["command_id"] for view in views}) == 2


WRONG_BODIES = [
    (b"", "Expecting value"),
    (b"[]", "object"),
    (b'{"run_id":"r","run_id":"r"}', "twice"),
    (b'{"run_id":"r","data":{"tool":"a/b","arguments":{"x":NaN}}}', "NaN"),
    (b'{"run_id":"r","data":{"tool":"a/b","arguments":{}},"args":{}}', "args"),
    (b'{"data":{"tool":"a/b","arguments":{}}}', "run_id"),
    (b'{"run_id":"a b","data":{"tool":"a/b","arguments":{}}}', "run_id"),
    (b'{"run_id":"r","command_id":"compensate:x","data":{"tool":"a/b","arguments":{}}}', "compensate:"),
    (b'{"run_id":"r","data":{"tool":"a/b"}}', "arguments"),
    (b'{"run_id":"r","data":{"tool":"a/b","arguments":{}},"expires_in_ms":0}', "expires_in_ms"),
    (b'{"run_id":"r","data":{"tool":"a/b","arguments":{}},"driver_id":7}', "driver_id"),
    (b'{"run_id":"r","kind":"tool.summon"}', "tool.summon"),
]


async def test_what_no_daemon_would_take_is_refused_here(plane: Plane) -> None:
    """With the reason; nothing is kept."""
    for body, named in WRONG_BODIES:
        answer = await plane.http.post("/v1/commands", content=body)
        assert answer.status_code == 422, body
        assert named in answer.json()["detail"]
    assert (await plane.get("/v1/commands"))["items"] == []


async def test_a_command_that_fits_no_frame_is_refused(plane: Plane) -> None:
    """It would close the link each time that it is delivered."""
    data = {"tool": "a/b", "arguments": {"x": "y" * 1_000_001}}
    assert (await plane.send(status=413, data=data))["code"] == "too_large"


async def test_other_kinds_are_given_the_same_way(plane: Plane) -> None:
    """With the data of their kind."""
    view = await plane.send(kind="run.end", data={"outcome": "done"})
    assert (view["kind"], view["data"]) == ("run.end", {"outcome": "done"})


async def test_wrong_parameters_are_refused(plane: Plane) -> None:
    """An unknown one too: a misspelt filter must not list everything."""
    for query in ("limit=0", "limit=501", "limit=x", "cursor=-1", "state=queued", f"cursor={2**63}"):
        for path in ("commands", "receipts", "runs"):
            assert (await plane.get(f"/v1/{path}?{query}", status=422))["code"] == "invalid_query"
    assert (await plane.get("/v1/commands/x?wait=61", status=422))["code"] == "invalid_query"


async def test_lists_are_pages(plane: Plane) -> None:
    """Newest first; the cursor of one page leads to the next, and nothing is shown twice."""
    for number in range(5):
        await plane.send(command_id=f"c{number}", run_id=f"r{number % 2}")
    for path, names in (("commands", ["c4", "c3", "c2", "c1", "c0"]), ("runs", ["r0", "r1"])):
        seen: list[str] = []
        query: dict[str, Any] = {"limit": 2 if path == "commands" else 1}
        while True:
            page = await plane.get(f"/v1/{path}", **query)
            seen += [item.get("command_id", item["run_id"]) for item in page["items"]]
            assert page["truncated"] == (page["next"] is not None)
            if page["next"] is None:
                break
            query["cursor"] = page["next"]
        assert seen == names
    only = await plane.get("/v1/commands", run="r1")
    assert [item["command_id"] for item in only["items"]] == ["c3", "c1"]


async def test_receipts_are_the_commands_that_have_one(driver: Driver) -> None:
    """Each with the event that is its receipt."""
    await driver.plane.send(command_id="c1")
    await driver.plane.send(command_id="c2")
    async with driver.session() as socket:
        await socket.say(*driver.journal.run("c2"))
        await driver.plane.until("c2", "succeeded")
    (item,) = (await driver.plane.get("/v1/receipts"))["items"]
    assert item["command_id"] == "c2"
    assert item["receipt"] == json.loads(driver.journal.frames[-1])


async def test_waiting_ends_with_the_receipt(driver: Driver) -> None:
    """The answer comes when there is one; when the time is up, it says how far the command got."""
    await driver.plane.send(command_id="c1")
    assert (await driver.plane.get("/v1/commands/c1", wait=0.1))["state"] == "queued"
    async with driver.session() as socket, anyio.create_task_group() as tasks:

        async def wait() -> None:
            assert (await driver.plane.get("/v1/commands/c1", wait=30))["state"] == "succeeded"

        tasks.start_soon(wait)
        await socket.hear("command")
        await socket.say(*driver.journal.run("c1"))


async def test_an_unknown_command_is_no_command(plane: Plane) -> None:
    """Also where it is waited for."""
    assert (await plane.get("/v1/commands/nobody", status=404, wait=30))["code"] == "unknown_command"
    assert (await plane.get("/v1/nothing", status=404))["code"] == "not_found"


async def test_events_are_streamed_in_the_order_of_arrival(driver: Driver) -> None:
    """From any cursor on; with `follow` the stream goes on with what comes."""
    frames = [driver.journal.commit(NOTE) for _ in range(3)]
    async with driver.session() as socket:
        await socket.say(*frames[:2])
        while (await socket.hear("ack"))["seq"] < 2:
            pass
        lines = (await driver.plane.http.get("/v1/events")).text.splitlines()
        assert [json.loads(line)["event"]["seq"] for line in lines] == [1, 2]
        after = json.loads(lines[0])["cursor"]
        async with driver.plane.http.stream("GET", f"/v1/events?after={after}&follow=true") as response:
            coming = response.aiter_lines()
            assert json.loads(await anext(coming))["event"]["seq"] == 2
            await socket.say(frames[2])
            assert json.loads(await anext(coming))["event"] == json.loads(frames[2])


async def test_a_run_in_doubt_is_not_resumed(driver: Driver) -> None:
    """What it did is not known yet; once everything has its receipt and is settled, it can be."""
    plane = driver.plane
    resuming: dict[str, Any] = {"tool": "a/b", "arguments": {}, "resumes": ["run-1"]}
    await plane.send(command_id="c1")
    assert (await plane.send(status=409, run_id="run-2", data=resuming))["code"] == "run_in_doubt"
    async with driver.session() as socket:
        await socket.say(*driver.journal.run("c1"))
        await plane.until("c1", "succeeded")
    await plane.send(run_id="run-2", data=resuming)
    async with driver.session() as socket:
        await plane.send(command_id="c2")
        await socket.say(*driver.journal.run("c2", UNKNOWN))
        await plane.until("c2", "unknown")
    assert (await plane.send(status=409, run_id="run-3", data=resuming))["code"] == "run_in_doubt"


async def test_a_command_goes_to_the_driver_of_its_run(plane: Plane) -> None:
    """Or to the only one there is; where there are several and none is named, somebody has to say."""
    one, two = Driver(plane=plane, driver_id="sbx-1"), Driver(plane=plane, driver_id="sbx-2")
    async with one.session():
        assert (await plane.send(command_id="c1"))["driver_id"] == "sbx-1"
    async with two.session() as socket:
        assert (await plane.send(run_id="run-1"))["driver_id"] == "sbx-1"
        assert (await plane.send(status=422, run_id="run-2"))["code"] == "driver_required"
        await plane.send(command_id="c3", run_id="run-2", driver_id="sbx-2")
        assert (await socket.hear("command"))["command_id"] == "c3"
        assert (await plane.send(run_id="run-2"))["driver_id"] == "sbx-2"


async def test_a_command_without_a_driver_goes_to_the_first_that_comes(plane: Plane) -> None:
    """And stays with it."""
    await plane.send(command_id="c1")
    async with Driver(plane=plane, driver_id="sbx-1").session() as socket:
        await socket.hear("command")
    async with Driver(plane=plane, driver_id="sbx-2").session() as socket:
        await socket.silence()
    assert (await plane.get("/v1/commands/c1"))["driver_id"] == "sbx-1"
