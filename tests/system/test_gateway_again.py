"""A call that a relay asks about again, where nobody takes it any more: it is told what became of it.

Nothing is executed for it, and whatever stands in its way, nobody says that nothing was.
"""

import json
import time
from typing import Any, Final

import anyio
import pytest

from tests.system.sandbox import sandbox
from tests.system.test_gateway_hostile import liar, outcome
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]

LONG_NAME: Final = "a-provider-whose-name-is-as-long-as-that-of-a-whole-tool"
"""What a tool of it is called says neither its provider nor the tool."""


def called(tool: str, number: int, **ours: Any) -> str:  # noqa: ANN401 - JSON
    """Return the `number`-th call of a relay, of which `ours` are its own words beside the id."""
    ours = {"command_id": f"gateway:{number}", **ours}
    meta = {f"dev.effectd/{name.replace('_', '-')}": value for name, value in ours.items()}
    params = {"name": tool, "arguments": {"n": number}, "_meta": meta}
    return f'"method":"tools/call","params":{json.dumps(params)}'


@pytest.mark.parametrize("in_the_way", ["its run is another relay's", "its tool is gone"])
@pytest.mark.parametrize("provider", ["other", LONG_NAME])
async def test_what_may_have_happened_is_unknown_whatever_is_in_its_way(
    zygote: Zygote, in_the_way: str, provider: str
) -> None:
    """The daemon died with the call; what is first asked about now was never made, and is refused."""
    async with sandbox(zygote, None, gateway={}) as made:
        counter = made.tables["providers.counter"]
        made.configure(**{"gateway": {}, f"providers__{provider}": counter})
        life = made.start(kill_at="dispatch.answered")
        await life.ready()

        def call() -> tuple[str, dict[str, Any]]:
            with liar(made) as one:
                journal_id = one.greet()["journal_id"]
                one.handshake()
                listed = one.ask('"method":"tools/list"')["result"]["tools"]
                tool = next(item["name"] for item in listed if item["name"].startswith(provider[:30]))
                words = {"asked_at": time.time(), "journal_id": journal_id}
                one.write(f'{{"jsonrpc":"2.0","id":9,{called(tool, 1)}}}'.encode())
                assert one.read() == {}
                return tool, words

        def ask_again(tool: str, words: dict[str, Any]) -> list[dict[str, Any]]:
            with liar(made) as other, liar(made) as back:
                if in_the_way == "its run is another relay's":
                    assert "refused" not in other.greet(instance="other")
                assert "refused" not in back.greet()
                back.handshake()
                asked = [called(tool, number, **words) for number in (1, 2)]
                return [back.ask(one) for one in (*asked, called(tool, 3))]

        tool, words = await anyio.to_thread.run_sync(call)
        assert await life.exit_code() < 0
        if in_the_way == "its tool is gone":
            made.configure(gateway={})
        await made.start().ready()
        lost, *others = await anyio.to_thread.run_sync(ask_again, tool, words)
        assert outcome(lost) == "unknown"
        assert f"{provider}/count" in lost["result"]["content"][0]["text"]
        assert not {"unknown", "succeeded"} & set(map(outcome, others))
        assert len(made.effects()) == 1
