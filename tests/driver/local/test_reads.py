"""What the reads answer: shapes word by word, filters, pages, and parameters that are wrong."""

import json
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from driver.core.redaction import MARKER
from driver.local.queries import REASONS, OperationsQuery, PageQuery, cursor_position, cursor_text
from store.events import ApprovalRequested, OperationFailed, OperationNotExecuted, OperationProbed
from store.lifecycle import Effect
from store.records import CommandId, RunId, Timestamp
from store.transaction import Transaction
from tests.driver.local.world import World, accept, digest, end, operation_id, served, start

pytestmark = pytest.mark.anyio

LISTED = [
    "operation_id",
    "command_id",
    "run_id",
    "origin",
    "tool",
    "args_digest",
    "state",
    "effect",
    "effect_by",
    "best_effort",
    "settled",
    "reason",
    "receipt",
    "attempt_count",
    "metadata",
    "accepted_at",
    "started_at",
    "ended_at",
    "deadline_at",
]
"""docs/local-api.md: an operation, in lists and alone."""
ALONE = [
    "arguments",
    "result",
    "deliveries",
    "attempts",
    "evidence",
    "events",
    "approvals",
    "late_results",
    "probes",
    "verdicts",
    "divergences",
    "annotations",
    "compensation",
    "compensates",
    "parent_operation_id",
    "child_run_id",
    "child_ops_total",
    "child_ops_unresolved",
    "allowed",
]
"""docs/local-api.md: alone also."""
STATUS = [
    "state",
    "driver_id",
    "journal_id",
    "boot_id",
    "link",
    "last_seq",
    "acked_seq",
    "counts",
    "unsettled",
    "oldest_unsettled_age_s",
    "dead_letters",
    "incidents",
    "journal",
    "gateway",
    "fence",
    "integrity",
    "fault_injection",
]

COUNT = 40
"""Operations of the shared world."""


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    """A history with every kind of end, over three runs."""
    async with served(tmp_path_factory.mktemp("reads")) as world:
        for number in range(COUNT):
            command, run = f"cmd-{number}", f"run-{number % 3}"
            await world.journal.transact(partial(_live, command=command, run=run, number=number))
        await world.journal.transact(lambda tx: tx.park(2, "invalid", "because"))
        await world.journal.transact(lambda tx: tx.park(3, "retired", "because"))
        yield world


def _live(tx: Transaction, command: str, run: str, number: int) -> None:
    """One of five lives, by number: waits, never left, failed in doubt, asks for approval, runs."""
    accept(tx, command, run, "issues/create" if number % 2 else "mail/send")
    match number % 5:
        case 0:
            end(tx, command, run, OperationNotExecuted(reason="expired"))
        case 1:
            start(tx, command, run)
            failed = OperationFailed(
                effect=Effect.UNKNOWN,
                error={"code": 500, "message": "x"},
                error_means="unsettled",
                result=None,
                receipt=None,
                attempts=1,
            )
            end(tx, command, run, failed)
        case 2:
            asked = ApprovalRequested(
                approval_id="ap-1",
                tool="mail/send",
                args_digest=digest("x"),
                arguments={},
                expires_at=_at(tx),
            )
            end(tx, command, run, asked)
        case 3:
            start(tx, command, run)
        case _:
            pass


def _at(tx: Transaction) -> Timestamp:
    last = tx.last_event()
    assert last is not None
    return last.at


async def pages(world: World, path: str, **parameters: str | int) -> list[dict[str, JsonValue]]:
    """Return the items of all pages of a list."""
    items: list[dict[str, JsonValue]] = []
    query = {name: str(value) for name, value in parameters.items()}
    async with world.client() as client:
        while True:
            page = (await client.get(path, params=query)).json()
            assert set(page) == {"items", "next", "truncated"}
            assert page["truncated"] is (page["next"] is not None)
            items += page["items"]
            if page["next"] is None:
                return items
            query["cursor"] = page["next"]


async def test_an_operation_in_a_list_has_its_members(world: World) -> None:
    """Word by word, in the order of docs/local-api.md."""
    page = (await world.get("/v1/operations", limit=1)).json()
    assert list(page["items"][0]) == LISTED


async def test_an_operation_alone_has_those_and_more(tmp_path: Path) -> None:
    """The whole story."""
    async with served(tmp_path) as world:
        await world.succeed("cmd-1", result={"text": "ü\u2028"})
        await world.journal.transact(lambda tx: tx.note_delivery(CommandId("cmd-1"), "accepted"))
        listed = (await world.get("/v1/operations")).json()["items"][0]
        alone = (await world.get(f"/v1/operations/{operation_id('cmd-1')}")).json()
    assert {name: alone[name] for name in LISTED} == listed
    assert set(alone) == {*LISTED, *ALONE, "command"}
    assert alone["arguments"] == {"title": "x"}
    assert alone["result"] == {"text": "ü\u2028"}
    assert alone["events"] == [1, 2, 3]
    assert (alone["state"], alone["effect_by"]) == ("succeeded", "provider")
    assert [delivery["answer"] for delivery in alone["deliveries"]] == ["accepted"]
    assert [attempt["outcome"] for attempt in alone["attempts"]] == ["succeeded"]
    assert [(item["seq"], item["effect"]) for item in alone["evidence"]] == [(3, "occurred")]
    assert (alone["probes"], alone["compensation"], alone["child_run_id"]) == ([], None, None)
    assert alone["command"]["receipt_kind"] == "operation.succeeded"


async def test_arguments_are_shown_without_what_a_contract_withholds(tmp_path: Path) -> None:
    """By the contract of the time when the call was accepted, and by today's as well."""
    arguments = {"token": "tok_9f8e7d6c5b4a", "title": "of tok_9f8e7d6c5b4a", "body": "its body", "n": 1}
    payload = json.dumps({"tool": "issues/create", "arguments": arguments}).encode()
    path = f"/v1/operations/{operation_id('cmd-1')}"
    async with served(tmp_path) as world:
        await world.journal.transact(
            lambda tx: accept(
                tx, "cmd-1", "run-1", "issues/create", payload=payload, redact=("arguments.token",)
            )
        )
        shown = (await world.get(path)).json()["arguments"]
        assert shown == {"token": MARKER, "title": f"of {MARKER}", "body": "its body", "n": 1}
        world.redact["issues/create"] = ("arguments.body",)
        shown = (await world.get(path)).json()["arguments"]
        assert shown == {"token": MARKER, "title": f"of {MARKER}", "body": MARKER, "n": 1}


async def test_erased_arguments_are_null(tmp_path: Path) -> None:
    """The operation is told of as before; a call has arguments as long as they are kept."""

    def unit(tx: Transaction) -> None:
        accept(tx, "cmd-1", "run-1", "issues/create", redact=("arguments.title",))
        end(tx, "cmd-1", "run-1", OperationNotExecuted(reason="expired"))
        tx.acknowledge(tx.last_seq)

    async with served(tmp_path) as world:
        await world.journal.transact(unit)
        alone = (await world.get(f"/v1/operations/{operation_id('cmd-1')}")).json()
        assert (alone["arguments"], alone["state"]) == (None, "not_executed")


async def test_a_probe_stands_in_the_story(tmp_path: Path) -> None:
    """What events alone say is told from them."""
    async with served(tmp_path) as world:
        await world.lose("cmd-1")
        probed = OperationProbed(verdict="undetermined", matches=0, detail=None)
        await world.journal.transact(lambda tx: end(tx, "cmd-1", "run-1", probed))
        alone = (await world.get(f"/v1/operations/{operation_id('cmd-1')}")).json()
    assert [(probe["seq"], probe["verdict"]) for probe in alone["probes"]] == [(4, "undetermined")]


async def test_a_status_has_its_members(world: World) -> None:
    """Every state has its count; what is unsettled has its age."""
    status = (await world.get("/v1/status")).json()
    assert list(status) == STATUS
    assert status["counts"] == {
        "accepted": 8,
        "awaiting_approval": 8,
        "started": 8,
        "succeeded": 0,
        "failed": 8,
        "not_executed": 8,
        "unknown": 0,
    }
    assert status["unsettled"] == 8
    assert status["oldest_unsettled_age_s"] >= 0
    assert set(status["journal"]) == {"bytes", "wal_bytes", "last_commit_at", "has_room", "sqlite_version"}
    assert set(status["link"]) == {"connected", "since", "url", "last_error"}
    assert (status["fence"], status["fault_injection"]) == (None, [])


async def test_a_fence_is_named(tmp_path: Path) -> None:
    """Its reason, where there is one."""
    async with served(tmp_path) as world:
        await world.journal.transact(lambda tx: tx.raise_fence("superseded", "4001"))
        assert (await world.get("/v1/status")).json()["fence"] == "superseded"


@settings(max_examples=40)
@given(
    limit=st.integers(1, 50),
    state=st.sampled_from(
        [None, "accepted", "awaiting_approval", "started", "failed", "not_executed", "unknown"]
    ),
    effect=st.sampled_from([None, "none", "occurred", "unknown"]),
    run=st.sampled_from([None, "run-0", "run-2", "run-9"]),
    tool=st.sampled_from([None, "issues/create", "mail/send"]),
    unsettled=st.sampled_from([None, "true", "false"]),
    reason=st.sampled_from([None, "expired", "crash_window", "failed_uncertain", "stale_in_flight"]),
)
async def test_walking_the_pages_gives_every_item_once(
    world: World, limit: int, **wanted: str | None
) -> None:
    """Whatever the size of a page and the filter: all that match, newest first, none twice."""
    filters = {name: value for name, value in wanted.items() if value is not None}
    walked = [item["operation_id"] for item in await pages(world, "/v1/operations", limit=limit, **filters)]
    everything = (await world.get("/v1/operations", limit=500)).json()["items"]
    assert walked == [item["operation_id"] for item in everything if _matches(item, filters)]


def _matches(item: dict[str, JsonValue], filters: dict[str, str]) -> bool:
    names = {"state": "state", "effect": "effect", "run": "run_id", "tool": "tool"}
    if any(item[names[name]] != value for name, value in filters.items() if name in names):
        return False
    unsettled = item["state"] == "failed"
    if filters.get("unsettled") == "true" and not unsettled:
        return False
    match filters.get("reason"):
        case None:
            return True
        case "failed_uncertain":
            return unsettled
        case "stale_in_flight":
            return False  # every deadline of this world is in 2030
        case reason:
            return item["reason"] == reason


@pytest.mark.parametrize(
    ("path", "key", "count"), [("/v1/runs", "run_id", 3), ("/v1/dead-letters", "seq", 2)]
)
async def test_the_other_lists_are_pages_too(world: World, path: str, key: str, count: int) -> None:
    """Each item once, one at a time."""
    walked = [item[key] for item in await pages(world, path, limit=1)]
    assert walked == [item[key] for item in (await world.get(path)).json()["items"]]
    assert len(set(walked)) == count


async def test_a_page_grows_no_larger_than_its_bound(tmp_path: Path) -> None:
    """Large receipts make more pages, not a larger one."""
    async with served(tmp_path, page_bytes_max=1) as world:
        for number in range(120):
            await world.accept(f"cmd-{number}")
        first = (await world.get("/v1/operations", limit=500)).json()
        assert 0 < len(first["items"]) < 120
        assert len(await pages(world, "/v1/operations", limit=500)) == 120


async def test_nothing_matches_is_an_empty_list(world: World) -> None:
    """`[]`, never null."""
    assert (await world.get("/v1/operations", run="none")).json() == {
        "items": [],
        "next": None,
        "truncated": False,
    }


async def test_a_run_alone_names_what_it_resumes(tmp_path: Path) -> None:
    """Directly, and through others."""
    async with served(tmp_path) as world:
        await world.accept("cmd-1", run="run-1")
        await world.accept("cmd-2", run="run-2")
        await world.journal.transact(lambda tx: tx.link_runs(RunId("run-2"), RunId("run-1")))
        assert (await world.get("/v1/runs/run-2")).json()["resumes"] == ["run-1"]


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/v1/operations", "limit=0"),
        ("/v1/operations", "limit=501"),
        ("/v1/operations", "limit=-1"),
        ("/v1/operations", "limit=1.0"),
        ("/v1/operations", "limit=1e2"),
        ("/v1/operations", "limit=٣"),
        ("/v1/operations", "limit="),
        ("/v1/operations", "limit=1&limit=2"),
        ("/v1/operations", "state=finished"),
        ("/v1/operations", "effect=maybe"),
        ("/v1/operations", "unsettled=1"),
        ("/v1/operations", "unsettled=True"),
        ("/v1/operations", "reason=because"),
        ("/v1/operations", "run="),
        ("/v1/operations", "run=a%20b"),
        ("/v1/operations", "unsetled=true"),
        ("/v1/operations", "cursor=x"),
        ("/v1/operations", "cursor=%C3%BC"),
        ("/v1/runs", "limit=0"),
        ("/v1/runs", "state=accepted"),
        ("/v1/dead-letters", "limit=501"),
        ("/v1/events", "after=-1"),
        ("/v1/events", "after=99999999999999999999"),
        ("/v1/events", "follow=yes"),
        ("/v1/events", "limit=5"),
        ("/v1/status", "verbose=true"),
        ("/healthz", "x=1"),
    ],
)
async def test_a_wrong_parameter_is_refused_by_name(world: World, path: str, query: str) -> None:
    """A filter that is misspelt, or stands twice, must not list everything."""
    async with world.client() as client:
        answer = await client.get(f"{path}?{query}")
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["code"] == "invalid_query"
    assert [error["name"] for error in problem["errors"]] == [query.partition("=")[0]]


async def test_every_wrong_parameter_is_named_at_once(world: World) -> None:
    """One round of mending is enough."""
    answer = await world.get("/v1/operations", limit=0, state="x", other="y")
    assert {error["name"] for error in answer.json()["errors"]} == {"limit", "state", "other"}


@pytest.mark.parametrize("reason", REASONS)
async def test_every_reason_is_a_filter(world: World, reason: str) -> None:
    """The words of docs/local-api.md, and every reason of an event."""
    assert (await world.get("/v1/operations", reason=reason)).status_code == 200


@given(position=st.integers(0, 2**63 - 1))
def test_a_cursor_is_opaque_and_comes_back(position: int) -> None:
    """It belongs to its list alone."""
    query = OperationsQuery.model_validate({"run": "run-1", "unsettled": "true"})
    text = cursor_text("operations", query, position)
    assert text is not None
    assert text.isascii()
    assert cursor_position("operations", query.model_copy(update={"cursor": text, "limit": 7})) == position


async def test_a_cursor_of_another_list_is_refused(world: World) -> None:
    """Positions of two lists mean different things."""
    cursor = cursor_text("runs", PageQuery(), 3)
    assert cursor is not None
    assert (await world.get("/v1/operations", cursor=cursor)).status_code == 422


@pytest.mark.parametrize(
    "other", [{}, {"state": "unknown"}, {"state": "failed", "run": "run-1"}, {"effect": "occurred"}]
)
async def test_a_cursor_under_other_filters_is_refused(world: World, other: dict[str, str]) -> None:
    """A page of one list behind the page of another would leave something out, and nobody would notice."""
    first = await world.get("/v1/operations", limit=1, state="failed")
    cursor = first.json()["next"]
    assert cursor is not None
    answer = await world.get("/v1/operations", cursor=cursor, **other)
    assert answer.status_code == 422
    assert [error["name"] for error in answer.json()["errors"]] == ["cursor"]
    assert "under other filters" in answer.json()["detail"]
    assert (await world.get("/v1/operations", cursor=cursor, limit=3, state="failed")).status_code == 200


async def test_an_answer_is_ascii(tmp_path: Path) -> None:
    """Half a surrogate pair in an answer breaks neither the encoder nor a terminal."""
    async with served(tmp_path) as world:
        await world.succeed("cmd-1", result="\ud800\x1b")
        answer = await world.get(f"/v1/operations/{operation_id('cmd-1')}")
    assert answer.content.isascii()
    assert json.loads(answer.content)["result"] == "\ud800\x1b"
