"""The journal as a stream: every event once and in order, for fast readers and slow ones."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.local.follower import Follower
from driver.local.service import Service
from driver.local.settings import LocalLimits
from store.events import Draft, DriverStarted
from tests.driver.local.world import World, opened, served

pytestmark = pytest.mark.anyio

NOISE = Draft(data=DriverStarted(software="effectd/test"))


def seqs(lines: list[str]) -> list[int]:
    """Return the seq of each line."""
    return [json.loads(line)["seq"] for line in lines]


async def first_lines(lines: AsyncIterator[str], count: int) -> list[str]:
    """Return the next `count` lines."""
    with anyio.fail_after(30):
        return [await anext(lines) for _ in range(count)]


def follower(world: World, *, after: int = 0, events_max: int = 1_000) -> Follower:
    """A follower that holds at most `events_max` events in memory."""
    return Follower(Service(world, LocalLimits(batch_events_max=events_max)), after)


async def test_without_follow_the_stream_ends_where_the_journal_did(tmp_path: Path) -> None:
    """All of it, each line the event's bytes as they go over the wire."""
    async with served(tmp_path, batch_events_max=7) as world:
        await world.chatter(30)
        lines = (await world.get("/v1/events")).content.splitlines()
        stored = await world.journal.read(lambda view: view.events(0, 100, 10**9))
        assert lines == [event.body for event in stored]
        assert seqs((await world.get("/v1/events", after=28)).text.splitlines()) == [29, 30]
        assert (await world.get("/v1/events", after=30)).text == ""
        assert (await world.get("/v1/events", after=99)).text == ""


async def test_a_follower_sees_what_is_committed_and_the_disk_is_left_alone(tmp_path: Path) -> None:
    """From the past into the present without a seam; in the present only commits do any work."""
    async with (
        served(tmp_path) as world,
        world.client() as client,
        client.stream("GET", "/v1/events?after=2&follow=true") as stream,
    ):
        lines = stream.aiter_lines()
        await world.chatter(5)
        assert seqs(await first_lines(lines, 3)) == [3, 4, 5]
        before = world.journal.statistics().units
        for _ in range(50):
            await world.chatter(2)
        assert seqs(await first_lines(lines, 100)) == list(range(6, 106))
        assert world.journal.statistics().units == before + 50


async def test_a_slow_reader_misses_nothing(tmp_path: Path) -> None:
    """It is fed from the journal again when its memory was full, and catches up with the present."""
    async with (
        served(tmp_path, batch_events_max=50) as world,
        world.client() as client,
        client.stream("GET", "/v1/events?follow=true") as stream,
    ):
        for _ in range(60):
            await world.chatter(100)
        lines = stream.aiter_lines()
        assert seqs(await first_lines(lines, 6_000)) == list(range(1, 6_001))
        await world.chatter(1)
        assert seqs(await first_lines(lines, 1)) == [6_001]


async def test_a_full_memory_is_thrown_away(tmp_path: Path) -> None:
    """What a reader that stands still costs is bounded."""
    async with opened(tmp_path) as world:
        with follower(world, events_max=10) as following:
            await world.chatter(1)
            assert [event.seq for event in await following.next_events()] == [1]
            for _ in range(40):
                await world.chatter(3)
                assert len(following._recent) <= 10
            found: list[int] = []
            while len(found) < 120:
                found += [event.seq for event in await following.next_events()]
            assert found == list(range(2, 122))


@settings(max_examples=25)
@given(
    commits=st.lists(st.integers(1, 12), min_size=1, max_size=25),
    pauses=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    events_max=st.integers(1, 15),
    after=st.integers(0, 5),
)
async def test_whatever_the_pace_every_event_comes_once(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[int],
    pauses: list[int],
    events_max: int,
    after: int,
) -> None:
    """A writer and a reader, each at its own pace, over every size of memory."""
    async with (
        opened(tmp_path_factory.mktemp("pace")) as world,
        anyio.create_task_group() as tasks,
    ):
        total = sum(commits)
        tasks.start_soon(_write, world, commits)
        found: list[int] = []
        with (
            follower(world, after=after, events_max=events_max) as following,
            anyio.move_on_after(60) as late,
        ):
            turn = 0
            while after + len(found) < total:
                found += [event.seq for event in await following.next_events()]
                for _ in range(pauses[turn % len(pauses)]):
                    await anyio.lowlevel.checkpoint()
                turn += 1
        assert not late.cancelled_caught
        assert found == list(range(after + 1, total + 1))


async def _write(world: World, commits: list[int]) -> None:
    for count in commits:
        await world.chatter(count)


async def test_a_wait_that_is_cancelled_loses_nothing(tmp_path: Path) -> None:
    """The next one goes on at the same place."""
    async with opened(tmp_path) as world:
        following = follower(world)
        with following:
            for _ in range(2):
                with anyio.move_on_after(0.02) as waited:
                    await following.next_events()
                assert waited.cancelled_caught
            await world.chatter(2)
            with anyio.fail_after(30):
                assert [event.seq for event in await following.next_events()] == [1, 2]


async def test_a_client_that_leaves_is_forgotten(tmp_path: Path) -> None:
    """No subscription outlives its connection."""
    async with served(tmp_path) as world:
        listeners = world.journal._listeners
        async with world.client() as client, client.stream("GET", "/v1/events?follow=true") as stream:
            await world.chatter(1)
            await first_lines(stream.aiter_lines(), 1)
            assert len(listeners) == 1
        with anyio.fail_after(30):
            while listeners:  # noqa: ASYNC110 - the server tells nobody that it noticed
                await anyio.sleep(0.01)


async def test_streams_may_not_take_all_connections(tmp_path: Path) -> None:
    """One more than the bound is refused; pages still come."""
    async with (
        served(tmp_path, streams_max=1) as world,
        world.client() as client,
        client.stream("GET", "/v1/events?follow=true"),
    ):
        answer = await world.get("/v1/events", follow="true")
        assert (answer.status_code, answer.json()["code"]) == (503, "busy")
        assert (await world.get("/v1/operations")).status_code == 200


async def test_a_stream_that_breaks_does_not_look_complete(tmp_path: Path) -> None:
    """A journal that stops in mid-stream ends the connection without the final chunk."""
    async with (
        served(tmp_path, batch_events_max=10) as world,
        await anyio.connect_unix(world.runtime_dir / "inspect.sock") as stream,
    ):
        await stream.send(b"GET /v1/events?follow=true HTTP/1.1\r\nhost: x\r\n\r\n")
        found = await stream.receive()
        await world.journal.transact(lambda tx: [tx.append(NOISE) for _ in range(20)])
        world.journal.close()  # its memory was too small for that commit, and now it cannot read
        with anyio.fail_after(30):
            try:
                while True:
                    found += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
        assert b"HTTP/1.1 200" in found
        assert not found.endswith(b"\r\n0\r\n\r\n")
