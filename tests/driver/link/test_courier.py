"""Commands on their way to the desk, and fences past them."""

from collections.abc import Sequence

import anyio
import pytest

from driver.core.answers import Answer, Silent
from driver.core.frames import CommandFrame
from driver.core.signals import Delivery, Opened
from driver.link.courier import Courier
from store.records import CommandId, RunId
from tests.driver.link.stage import PATIENCE_S

pytestmark = pytest.mark.anyio


class Desk:
    """Says in which order it was asked for what."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def deliver(self, frames: Sequence[Delivery]) -> Sequence[Answer]:
        self.asked += [frame.command_id for frame in frames]
        return [Silent() for _ in frames]

    def history_confirmed(self) -> None:
        raise AssertionError

    async def fence(self, reason: str, detail: str) -> None:
        self.asked.append(f"fence: {reason}")

    async def agree(self) -> None:
        self.asked.append("agree")

    def acknowledged(self, seq: int) -> None:
        raise AssertionError(seq)

    def refused(self, seq: int) -> None:
        raise AssertionError(seq)

    async def opening(self) -> Opened:
        raise AssertionError


def command(number: int) -> CommandFrame:
    """Return a command."""
    return CommandFrame(command_id=CommandId(f"cmd-{number}"), run_id=RunId("run-1"), kind="run.end")


async def test_a_fence_waits_for_no_answer() -> None:
    """A plane that takes no answers cannot hold up a fence; the next batch is behind the fence."""
    desk, stuck, answered = Desk(), anyio.Event(), anyio.Event()
    courier = Courier(desk)

    async def answer(_answer: Answer) -> None:
        stuck.set()
        await answered.wait()

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(courier.run)
            courier.carry(command(1), 1, answer)
            await stuck.wait()
            courier.carry(command(2), 1, answer)
            courier.raise_fence("conflict", "")
            await courier.fence_raised()
            assert desk.asked == ["cmd-1", "fence: conflict"]
            answered.set()
            await anyio.wait_all_tasks_blocked()
            assert desk.asked == ["cmd-1", "fence: conflict", "cmd-2"]
            tasks.cancel_scope.cancel()


async def test_fences_are_raised_in_order_and_lifted() -> None:
    """Which of two stands is the journal's to say; whoever waits goes on when the last is raised."""
    desk = Desk()
    courier = Courier(desk)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            courier.raise_fence("conflict", "")
            courier.raise_fence("superseded", "")
            courier.lift_fence(lambda: desk.asked.append("hello"))
            tasks.start_soon(courier.run)
            await courier.fence_raised()
            tasks.cancel_scope.cancel()
    assert desk.asked == ["fence: conflict", "fence: superseded", "agree", "hello"]
