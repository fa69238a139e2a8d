"""What lives are asked to do before and after they are killed: together, everything that effectd can do.

Part of `kill points`. An act is asked of each life anew, whatever the one before has done of it.
"""

import sqlite3
from contextlib import closing
from typing import Final

import anyio
from anyio import to_thread

from driver.config.sockets import GATEWAY_SOCKET
from store.files import failed_fsync_mark
from store.identity import read_identity
from tests.faults.kill_points.stage import Stage
from tests.faults.look import Looker
from tests.store.test_migrations import make
from tests.system.audit import key_of
from tests.system.history import History, Json
from tests.system.plane import call

POLL_S: Final = 0.02
NOT_FOUND: Final = 404
PRUNED_S: Final = 4.0


async def nothing(_: Stage) -> None:
    """Ask nothing."""


async def a_journal(stage: Stage) -> None:
    """Let a life begin and end, of which nothing was asked."""
    await stage.live(nothing)


def order(command_id: str, kind: str, run_id: str = "desk", **data: object) -> Json:
    """Return a command that is no call."""
    return {"type": "command", "command_id": command_id, "run_id": run_id, "kind": kind, "data": data}


def said(stage: Stage, kind: str, operation_id: str | None = None) -> list[Json]:
    """Return the events of a kind, in all histories; those about one operation, where it is named."""
    events = (event for history in stage.plane.histories.values() for event in history.events())
    found = [event for event in events if event["kind"] == kind]
    return [event for event in found if operation_id in (None, event["operation_id"])]


# ------------------------------------------------------------ calls


async def calls(stage: Stage) -> None:
    """Calls that end in every way, one of them delivered three times; then all are delivered again."""
    again = call("cmd-1", "shop/order", n=1)
    await stage.order(
        again,
        call("cmd-2", "shop/broken", n=2),
        call("cmd-3", "shop/find", marker="x"),
        call("cmd-4", "nobody/order", n=4),
        order("cmd-5", "operation.annotate", operation_id=key_of(again), metadata={"title": "a"}),
    )
    for _ in range(2):
        await stage.plane.deliver("cmd-1")
    await stage.plane.answered()


# ------------------------------------------------------------ what follows an uncertain outcome


async def retries(stage: Stage) -> None:
    """A contract's retry with the same key, and an operator's of what a probe has not found."""
    vain = call("cmd-2", "shop/vain", n=2)
    await stage.order(call("cmd-1", "shop/keyed", n=1), vain)
    await stage.plane.answered()
    await stage.plane.until(lambda: said(stage, "operation.reconciled", key_of(vain)))
    await stage.order(order("cmd-3", "operation.retry", operation_id=key_of(vain)))
    await stage.plane.answered()


async def probes(stage: Stage) -> None:
    """A call whose answer is lost is looked for, by schedule and when told to."""
    lost = call("cmd-1", "shop/lost", n=1)
    await stage.order(lost)
    await stage.plane.receipt_of("cmd-1")
    await stage.order(order("cmd-2", "operation.probe", operation_id=key_of(lost)))
    await stage.plane.answered()
    await stage.plane.until(lambda: said(stage, "operation.reconciled", key_of(lost)))


async def verdicts(stage: Stage) -> None:
    """People say what happened: over the plane, on the socket; once more, and against what is known."""
    lost, vain = call("cmd-1", "shop/lost", n=1), call("cmd-2", "shop/vain", n=2)
    await stage.order(lost, vain)
    await stage.plane.answered()
    await stage.order(
        _truth_about(stage, lost),
        order(
            "cmd-3",
            "operation.reconcile",
            operation_id=key_of(lost),
            effect="unknown",
            actor="ann",
            note="I forgot",
        ),
        _truth_about(stage, vain),
    )
    body = {"effect": _effect_of(stage, vain), "note": "and I"}
    await stage.spoken(stage.made.post(f"/v1/operations/{key_of(vain)}/reconcile", body))
    await stage.plane.answered()
    # what provably did not happen may be done, once
    await stage.order(order("cmd-6", "operation.retry", operation_id=key_of(vain)))
    await stage.plane.answered()


async def approvals(stage: Stage) -> None:
    """One call is granted and one denied; a request that a crash made anew is decided anew."""
    await stage.order(call("grant", "shop/order", n=1), call("deny", "shop/order", n=2))

    def is_done() -> bool:
        return all(stage.plane.receipt(name) for name in ("grant", "deny"))

    def undecided() -> list[Json]:
        decisions = map(_decision, said(stage, "operation.approval_requested"))
        return [each for each in decisions if each["command_id"] not in stage.plane.orders]

    while not is_done():
        await stage.order(*undecided())
        await stage.plane.until(lambda: is_done() or undecided())
    await stage.plane.answered()


def _decision(request: Json) -> Json:
    """Return the plane's word about a request: what the command is called."""
    approval_id: str = request["data"]["approval_id"]
    return order(
        f"decide-{approval_id}",
        "operation.approve",
        operation_id=request["operation_id"],
        approval_id=approval_id,
        decision=request["command_id"],
        approver="ann",
    )


async def cancels(stage: Stage) -> None:
    """Calls are cancelled while they run and while they wait, and with their run; one expires; a run ends."""
    await stage.order(
        call("running", "shop/slow", n=1),
        call("waiting", "shop/order", n=2),
        {**call("expiring", "shop/order", n=3), "expires_in_ms": 1},
        call("of-a-run", "shop/order", run_id="run-2", n=4),
        order("cancel-1", "command.cancel", "run-1", target_command_id="waiting"),
        order("cancel-2", "command.cancel", "run-1", target_command_id="running"),
        order("cancel-3", "run.cancel", "run-2"),
        order("end", "run.end", "run-2"),
    )
    await stage.plane.receipt_of("end")
    await stage.order(call("after-the-end", "shop/order", run_id="run-2", n=5))
    await stage.plane.answered()


async def compensations(stage: Stage) -> None:
    """One call is taken back, and then its whole run is."""
    first, second = call("cmd-1", "shop/order", n=1), call("cmd-2", "shop/order", n=2)
    await stage.order(first, second)
    await stage.plane.receipt_of("cmd-2")
    await stage.order(order("undo-1", "operation.compensate", operation_id=key_of(first)))
    await stage.plane.receipt_of("undo-1")
    await stage.order(order("undo-2", "run.compensate", "run-1"))
    await stage.plane.answered()


async def delegation(stage: Stage) -> None:
    """A call whose outcome is lost has handed on work to another run: what that did says what happened."""
    parent = call("parent", "shop/lost", n=1)
    await stage.order(parent)
    await stage.plane.receipt_of("parent")
    children = [call(f"child-{n}", "shop/order", run_id="child", n=n) for n in range(2)]
    for child in children:
        child["data"]["parent_operation_id"] = key_of(parent)
    await stage.order(*children)
    await stage.plane.answered()
    for child in children:
        receipt = stage.plane.receipt(child["command_id"])
        assert receipt is not None
        if receipt["kind"] == "operation.unknown":
            await stage.order(_truth_about(stage, child))
    await stage.order(order("end", "run.end", "child"))
    await stage.plane.answered()
    await stage.plane.until(lambda: said(stage, "operation.reconciled", key_of(parent)))


def _truth_about(stage: Stage, command: Json) -> Json:
    """Return the word of somebody who has looked: what became of a call that nobody hears of any more."""
    word = {"effect": _effect_of(stage, command), "actor": "ann", "note": "I looked"}
    command_id = f"truth-{command['command_id']}"
    return order(command_id, "operation.reconcile", operation_id=key_of(command), **word)


def _effect_of(stage: Stage, command: Json) -> str:
    return "occurred" if stage.shop.effects[key_of(command)] else "none"


# ------------------------------------------------------------ what leaves the journal


async def a_run_that_is_over(stage: Stage) -> None:
    """Make two calls, and let them be acknowledged."""

    async def both(stage: Stage) -> None:
        await stage.order(*(call(f"old-{n}", "shop/order", run_id="old", n=n) for n in range(2)))
        await stage.plane.answered()

    await stage.live(both)


async def erasure(stage: Stage) -> None:
    """The content of a run is erased, while another one goes on."""
    await stage.order(order("erase", "run.erase", "old"), call("cmd-1", "shop/order", n=1))
    await stage.plane.answered()
    for name in ("old-0", "old-1"):
        await stage.plane.deliver(name)
        await stage.plane.answer_to(name)
        stage.facts.add("retired")


async def retention(stage: Stage) -> None:
    """What is over is pruned, and told to be."""
    await stage.order(call("cmd-1", "shop/order", n=1))
    await stage.plane.answered()
    # earlier lives may have left nothing to prune, and then nobody says so
    with anyio.move_on_after(PRUNED_S):
        await stage.made.lives[-1].told("pruned")
    await stage.plane.deliver("old-0")
    await stage.plane.answer_to("old-0")
    stage.facts.add("retired")


# ------------------------------------------------------------ processes


async def programs(stage: Stage) -> None:
    """Programs that succeed, that fail, and that outlive the daemon that began them."""
    await stage.order(call("cmd-1", "shell/slow", n=1), call("cmd-2", "shell/fail", n=2))
    await stage.plane.answered()
    if stage.made.lives[-1].lines("attempt_readopted"):
        stage.facts.add("program readopted")


async def servers(stage: Stage) -> None:
    """Calls of an MCP server over stdio, which the daemon starts."""
    await stage.order(call("cmd-1", "counter/count", n=1), call("cmd-2", "counter/fail", n=2))
    await stage.plane.answered()


async def servers_far_away(stage: Stage) -> None:
    """Calls of an MCP server over Streamable HTTP, one of which is answered as a stream, and one never."""
    names = ("file", "tell", "lose")
    await stage.order(*(call(f"cmd-{n}", f"office/{name}", n=n) for n, name in enumerate(names)))
    await stage.plane.answered()


async def agents(stage: Stage) -> None:
    """Agents call through the gateway; their relay asks each life again, under the same ids."""
    relay, asked = stage.relay, stage.relay.again
    for number, name in enumerate(("order", "broken", "slow", "keyed", "lost")):
        relay.call(f"shop__{name}", n=number)
    await stage.spoken(stage.made.lives[-1].ready())  # which it may not live to say, after its hello
    await stage.spoken(relay.ask(stage.made.runtime / GATEWAY_SOCKET))
    if relay.again > asked:
        stage.facts.add("asked again through the gateway")
    stage.facts |= {f"an agent heard: {outcome}" for each in relay.calls.values() for _, outcome in each.told}
    await stage.plane.until(lambda: all(stage.plane.receipt(name) for name in relay.calls))


def lies_to_agents(stage: Stage) -> list[str]:
    """Return what agents were told that is not so."""
    return list(stage.relay.lies(stage.executions()))


# ------------------------------------------------------------ the supervisor, copies, histories


async def triage(stage: Stage) -> None:
    """What nobody can look for is judged by the supervisor's model, run by run."""
    await stage.order(call("cmd-1", "shop/lost", n=1), call("cmd-2", "shop/lost", run_id="run-2", n=2))
    await stage.plane.answered()
    keys = [key_of(stage.plane.orders[name].command) for name in ("cmd-1", "cmd-2")]
    await stage.plane.until(lambda: all(said(stage, "operation.reconciled", key) for key in keys))


async def backup(stage: Stage) -> None:
    """A copy of the journal is made beside its work."""
    await stage.order(call("cmd-1", "shop/order", n=1))
    await stage.plane.answered()
    folder = stage.made.root / "backups"
    folder.mkdir(exist_ok=True)
    target = folder / f"{len(stage.made.lives)}.db"
    *_, last = await stage.spoken(stage.made.post_for_lines("/v1/backup", {"file": str(target)}))
    assert last["ok"], last
    stage.facts.add("backup")
    await stage.order(call("cmd-2", "shop/order", n=2))
    await stage.plane.answered()


async def dead_letters(stage: Stage) -> None:
    """The plane parks an event, and an operator has it reported again."""

    def nack(event: Json) -> Json | None:
        is_it = event["kind"] == "operation.annotated" and "requeue_of" not in event["data"]
        return {"type": "nack", "seq": event["seq"], "code": "invalid", "message": "?"} if is_it else None

    stage.plane.on_nack = nack
    made = call("cmd-1", "shop/order", n=1)
    note = order("cmd-2", "operation.annotate", operation_id=key_of(made), metadata={"title": "a"})
    await stage.order(made, note)
    await stage.plane.answered()
    await stage.plane.until(lambda: said(stage, "operation.annotated"))
    seq = said(stage, "operation.annotated")[0]["seq"]
    if await _requeued(stage, seq):
        await stage.plane.until(lambda: len(said(stage, "operation.annotated")) > 1)
        stage.facts.add("dead letter requeued")
    assert len(said(stage, "operation.annotated")) <= 2, said(stage, "operation.annotated")


async def _requeued(stage: Stage, seq: int) -> bool:
    """Have an event reported again, once it is parked; False where it never is.

    A daemon that dies with the nack in hand is welcomed by a plane that has acknowledged what came behind it.
    """
    while True:
        passed = (await stage.spoken(stage.made.status()))["acked_seq"] >= seq
        if (await stage.spoken(stage.made.post(f"/v1/dead-letters/{seq}/requeue", {})))[0] != NOT_FOUND:
            return True
        if passed:
            return False
        await anyio.sleep(POLL_S)  # nobody is told when a nack is durable


def bad_copies(stage: Stage) -> list[str]:
    """Return what is wrong with each backup that has its name."""
    place = stage.made.root / "look"
    place.mkdir()
    found = Looker(place).look_at(stage.made.root).backups
    return [f"{name}: {problem}" for name, problem in found.items() if problem]


async def a_rollback(stage: Stage) -> None:
    """Put an older state back, after life went on without it."""

    async def two(stage: Stage) -> None:
        await stage.order(*(call(f"old-{n}", "shop/order", n=n) for n in range(2)))
        await stage.plane.answered()

    async def a_third(stage: Stage) -> None:
        await stage.order(call("old-2", "shop/order", n=2))
        await stage.plane.answered()

    await stage.live(two)
    older = stage.files()
    await stage.live(a_third)
    stage.put(older)


async def rollback(stage: Stage) -> None:
    """An operator accepts that the journal is an older one; another history begins."""
    if len(stage.plane.histories) == 1:
        if stage.plane.hellos[-1]["state"] != "fenced":
            fenced = stage.made.events_until(lambda event: event["kind"] == "driver.fenced")
            await stage.spoken(fenced)
        await stage.spoken(stage.made.post("/v1/unfence", {"accept_rollback": True}))
    await stage.plane.until(lambda: len(stage.plane.histories) > 1 and stage.plane.history.last_seq > 0)
    stage.facts.add("fence lifted")
    await stage.order(call("cmd-1", "shop/order", n=3))
    await stage.plane.answered()


async def an_old_journal(stage: Stage) -> None:
    """Put a journal there that the first effectd has written, and let the plane hold all of it."""
    path = await to_thread.run_sync(make, stage.made.state, 1)
    with closing(sqlite3.connect(path)) as connection:
        (journal_id,) = connection.execute("SELECT journal_id FROM journal").fetchone()
        last, chain = connection.execute("SELECT seq, chain FROM events ORDER BY seq DESC").fetchone()
        names = connection.execute("SELECT command_id FROM commands").fetchall()
    stage.plane.histories[journal_id] = History(
        journal_id,
        frames=[None] * last,
        chains=[*[""] * (last - 1), chain],
        acked=last,
        accepted=dict.fromkeys((name for (name,) in names), 0),
    )


async def a_failed_fsync(stage: Stage) -> None:
    """Have a journal of which an fsync has failed."""
    await a_run_that_is_over(stage)
    identity = read_identity(stage.made.state)
    assert identity is not None
    failed_fsync_mark(stage.made.runtime, identity.file_id).touch(0o600)


async def one_call(stage: Stage) -> None:
    """Make one call."""
    await stage.order(call("new", "shop/order", run_id="new", n=1))
    await stage.plane.answered()
