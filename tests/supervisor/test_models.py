"""The models over real sockets and processes: what is sent, what is kept secret, and every bad answer."""

import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import anyio
import pytest
from anyio.abc import AnyByteStream

from driver.triage import on_leash
from store.journal import Journal
from store.lifecycle import Effect
from store.records import JsonObject
from supervisor.models.anthropic import PATH as MESSAGES
from supervisor.models.anthropic import AnthropicChat
from supervisor.models.chat import ChatModel
from supervisor.models.command import CommandChat, Program
from supervisor.models.model import ANSWER_BYTES_MAX, Chat, Judged, ModelFailed
from supervisor.models.openai import PATH as COMPLETIONS
from supervisor.models.openai import OpenAiChat
from supervisor.models.post import Endpoint
from supervisor.models.rules import RulesModel
from supervisor.prompt import SYSTEM
from supervisor.verdict import Malformed, rule
from supervisor.wall import Wall
from tests.driver.providers.http.site import (
    Request,
    Script,
    Site,
    http,
    says,
    site,
    slowly,
    then_hangs_up,
    then_resets,
)
from tests.supervisor.stage import (
    PATIENCE_S,
    RUN,
    events_of,
    journal_at,
    lost,
    nothing_unsettled,
    operation_id,
    running,
    supervising,
    until,
)

pytestmark = pytest.mark.anyio

KEY = "sk-canary-0123456789"
TIMEOUTS_S = (2.0, 10.0, 30.0)
"""The next one where a program was not there yet when it was killed, on a busy machine."""
Api = Literal["openai", "anthropic"]
APIS: tuple[Api, ...] = ("openai", "anthropic")


def verdicts(effect: str = "occurred") -> str:
    """What a good model writes about operations 1 and 2."""
    found = [{"operation_id": operation_id(n), "effect": effect, "basis": "it says so"} for n in (1, 2)]
    return json.dumps({"needs_attention": False, "summary": "two calls", "verdicts": found})


def answer(api: Api, text: str) -> bytes:
    """A whole response of the API, with this text in it."""
    body: JsonObject
    if api == "openai":
        body = {"id": "c-1", "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}
    else:
        thinking: JsonObject = {"type": "thinking", "thinking": "hm"}
        body = {"type": "message", "content": [thinking, {"type": "text", "text": text}]}
    return http(body=json.dumps(body).encode())


def chat(api: Api, made: Site, key_file: Path | None, timeout_s: float = 30.0) -> Chat:
    """A client of the API at the site."""
    path = COMPLETIONS if api == "openai" else MESSAGES
    url = f"http://127.0.0.1:{made.port}{path}"
    endpoint = Endpoint(url=url, model_name="tiny-1", key_file=key_file, timeout_s=timeout_s)
    return OpenAiChat(endpoint) if api == "openai" else AnthropicChat(endpoint)


def one_after_the_other(*scripts: Script) -> Script:
    """Answer each request by the next script, and all further ones by the last."""
    rest = list(scripts)

    async def script(made: Site, stream: AnyByteStream, request: Request) -> None:
        await (rest.pop(0) if len(rest) > 1 else rest[0])(made, stream, request)

    return script


@dataclass
class Asked:
    """A wall of two operations, and a key in a file."""

    wall: Wall
    key_file: Path
    journal: Journal


@asynccontextmanager
async def asked(tmp_path: Path) -> AsyncGenerator[Asked]:
    """Two operations whose outcome is lost."""
    key_file = tmp_path / "key"
    key_file.write_text(f"{KEY}\n")
    async with journal_at(tmp_path) as journal:
        for n in (1, 2):
            await journal.transact(lost(n))
        wall = await supervising(journal, RulesModel()).wall(RUN)
        assert wall is not None
        yield Asked(wall, key_file, journal)


def effects(wall: Wall, judged: Judged) -> list[Effect]:
    """What is ruled of the wall's operations."""
    return [ruling.effect for ruling in rule(wall.operation_ids, judged.answer)]


@pytest.mark.parametrize("api", APIS)
async def test_a_model_is_shown_the_wall_and_nothing_else(tmp_path: Path, api: Api) -> None:
    """One POST: the system prompt, the wall as it stands, the key in the API's own header."""
    async with asked(tmp_path) as given, site(says(answer(api, verdicts()))) as made:
        judged = await ChatModel(chat(api, made, given.key_file)).judge(given.wall)
        assert judged.status == "answered"
        assert effects(given.wall, judged) == [Effect.OCCURRED, Effect.OCCURRED]
        (request,) = made.requests
        body = cast("dict[str, Any]", request.json)
        assert (request.method, body["model"]) == ("POST", "tiny-1")
        if api == "openai":
            assert request.target == "/chat/completions"
            assert request.headers["authorization"] == f"Bearer {KEY}"
            system, user = body["messages"]
            assert (system, body["stream"]) == ({"role": "system", "content": SYSTEM}, False)
        else:
            assert request.target == "/v1/messages"
            assert (request.headers["x-api-key"], request.headers["anthropic-version"]) == (KEY, "2023-06-01")
            (user,) = body["messages"]
            assert body["system"] == SYSTEM
            assert body["max_tokens"] > 2_000
        assert user == {"role": "user", "content": given.wall.text}


async def test_an_answer_in_blocks_is_its_texts(tmp_path: Path) -> None:
    """Some compatible servers answer in blocks, what the model thought among them."""
    blocks = [
        {"type": "thinking", "thinking": "{}"},
        *({"type": "text", "text": part} for part in verdicts()),
    ]
    body = http(body=json.dumps({"choices": [{"message": {"content": blocks}}]}).encode())
    async with asked(tmp_path) as given, site(says(body)) as made:
        judged = await ChatModel(chat("openai", made, None)).judge(given.wall)
        assert effects(given.wall, judged) == [Effect.OCCURRED, Effect.OCCURRED]


@pytest.mark.parametrize("api", APIS)
async def test_a_malformed_answer_is_asked_for_once_more(tmp_path: Path, api: Api) -> None:
    """The corrective question shows the model what it said, and says what was wrong."""
    script = one_after_the_other(says(answer(api, "It all went well.")), says(answer(api, verdicts("none"))))
    async with asked(tmp_path) as given, site(script) as made:
        judged = await ChatModel(chat(api, made, None)).judge(given.wall)
        assert judged.status == "repaired"
        assert effects(given.wall, judged) == [Effect.NONE, Effect.NONE]
        messages = cast("dict[str, Any]", made.requests[1].json)["messages"]
        assert messages[-2] == {"role": "assistant", "content": "It all went well."}
        assert "no JSON object" in messages[-1]["content"]


@pytest.mark.parametrize("api", APIS)
async def test_a_model_that_never_answers_in_the_form_is_asked_twice(tmp_path: Path, api: Api) -> None:
    """And then it is malformed: the rules decide."""
    async with asked(tmp_path) as given, site(says(answer(api, "no"))) as made:
        with pytest.raises(Malformed):
            await ChatModel(chat(api, made, None)).judge(given.wall)
        assert len(made.requests) == 2


STREAM = b'data: {"choices":[{"delta":{"content":"{"}}]}\n\ndata: [DONE]\n\n'
BAD: dict[str, tuple[Script, str]] = {
    "an error": (says(http(500, b'{"error": "sk-canary-0123456789"}')), "HTTP 500"),
    "too many requests": (says(http(429, b"{}", retry_after="7")), "HTTP 429"),
    "not authorised": (says(http(401, b"{}")), "HTTP 401"),
    "a redirect": (says(http(307, b"", location="http://127.0.0.1:1/steal")), "HTTP 307"),
    "a stream": (says(http(200, STREAM, kind="text/event-stream; charset=utf-8")), "a stream"),
    "no JSON": (says(http(200, b"<html>busy</html>", kind="text/html")), "no JSON"),
    "a list": (says(http(200, b"[1]")), "no JSON object"),
    "depth": (says(http(200, b"[" * 200_000)), "no JSON"),
    "another object": (says(http(200, b'{"object": "list"}')), "answered what is no"),
    "too much": (says(http(200, b'{"x": "' + b"x" * (ANSWER_BYTES_MAX + 1) + b'"}')), "more than"),
    "half of it": (then_hangs_up(answer("openai", verdicts())[:-20]), "cannot be reached"),
    "a reset": (then_resets(b"HTTP/1.1 200 OK\r\n"), "cannot be reached"),
    "garbage": (then_hangs_up(b"220 smtp ready\r\n\r\n"), "cannot be reached"),
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("bad", BAD)
async def test_every_bad_answer_is_a_failure_that_tells_no_secret(
    tmp_path: Path, api: Api, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Bounded, not followed, not repeated: neither what the peer said nor the key stands in the error."""
    script, expected = BAD[bad]
    caplog.set_level(logging.DEBUG)
    async with asked(tmp_path) as given, site(script) as made:
        with pytest.raises(ModelFailed, match=expected) as caught:
            await ChatModel(chat(api, made, given.key_file)).judge(given.wall)
        assert caught.value.retry_after_s == (7.0 if bad == "too many requests" else None)
        assert "canary" not in str(caught.value) + repr(caught.value.__dict__)
        assert len(made.requests) == 1
    assert "canary" not in caplog.text


@pytest.mark.parametrize("api", APIS)
async def test_a_slow_model_is_given_up_at_its_timeout(tmp_path: Path, api: Api) -> None:
    """Whatever has come by then: the whole answer counts, or none."""
    whole = answer(api, verdicts())
    async with asked(tmp_path) as given, site(slowly(whole[:200], whole[200:])) as made:
        with pytest.raises(ModelFailed, match="did not answer within"):
            await ChatModel(chat(api, made, None, timeout_s=0.3)).judge(given.wall)


@pytest.mark.parametrize("api", APIS)
async def test_a_model_that_nobody_serves_fails(tmp_path: Path, api: Api) -> None:
    """A refused connection is told as one that cannot be reached."""
    async with asked(tmp_path) as given:
        async with site(says()) as made:
            pass
        with pytest.raises(ModelFailed, match="cannot be reached"):
            await ChatModel(chat(api, made, None)).judge(given.wall)


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (None, "cannot be read"),
        (b"", "visible ASCII"),
        (b"a b", "visible ASCII"),
        (b"k\r\nx: y", "visible ASCII"),
    ],
)
async def test_a_key_that_cannot_be_used_asks_nobody(
    tmp_path: Path, content: bytes | None, detail: str
) -> None:
    """A second header line cannot be forged by a key file, and its content is not told."""
    async with asked(tmp_path) as given, site(says(answer("openai", verdicts()))) as made:
        if content is None:
            given.key_file.unlink()
        else:
            given.key_file.write_bytes(content)
        with pytest.raises(ModelFailed, match=detail):
            await ChatModel(chat("openai", made, given.key_file)).judge(given.wall)
        assert made.connections == 0


async def test_a_rotated_key_is_used_at_once(tmp_path: Path) -> None:
    """The file is read at each use."""
    async with asked(tmp_path) as given, site(says(answer("openai", verdicts()))) as made:
        model = ChatModel(chat("openai", made, given.key_file))
        await model.judge(given.wall)
        given.key_file.write_text("sk-new")
        await model.judge(given.wall)
        sent = [request.headers["authorization"] for request in made.requests]
        assert sent == [f"Bearer {KEY}", "Bearer sk-new"]


async def test_the_environment_names_no_proxy_and_no_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a model is asked, and the key, go to the configured address only."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with asked(tmp_path) as given, site(says(answer("openai", verdicts()))) as made:
        await ChatModel(chat("openai", made, None)).judge(given.wall)
        assert "authorization" not in made.requests[0].headers


async def test_a_failing_server_costs_its_attempts_and_then_the_rules_decide(tmp_path: Path) -> None:
    """End to end, over a real socket: three requests, one verdict that wants attention."""
    async with asked(tmp_path) as given, site(says(http(503, b"{}"))) as made:
        model = ChatModel(chat("openai", made, given.key_file))
        async with running(supervising(given.journal, model, interval_s=0.01)):
            await until(given.journal, nothing_unsettled)
        assert len(made.requests) == 3
        ((_, said),) = await events_of(given.journal, "supervisor.verdict")
        assert (said["status"], said["needs_attention"]) == ("fallback", True)


# ------------------------------------------------------------------ programs


def program(tmp_path: Path, code: str, timeout_s: float = 30.0) -> ChatModel:
    """A model that is a Python program."""
    argv = (sys.executable, "-I", "-S", "-c", code)
    made = Program(argv=argv, cwd=tmp_path, timeout_s=timeout_s)
    return ChatModel(CommandChat(made, {**os.environ, "SECRET_TOKEN": "canary"}, on_leash))


READS = "import json, os, re, sys\nasked = json.load(sys.stdin)\n"
ANSWERS = (
    READS + "ids = re.findall('\"operation_id\":\"(op_[0-9a-f]{32})\"', asked['messages'][0]['content'])\n"
    "print(json.dumps({'needs_attention': False, 'summary': repr(sorted(os.environ)),"
    " 'verdicts': [{'operation_id': i, 'effect': 'none', 'basis': 'b'} for i in ids]}))"
)


async def test_a_program_gets_the_question_as_json_and_prints_its_answer(tmp_path: Path) -> None:
    """And no variable of ours but those that a program needs to run."""
    async with asked(tmp_path) as given:
        judged = await program(tmp_path, ANSWERS).judge(given.wall)
        assert effects(given.wall, judged) == [Effect.NONE, Effect.NONE]
        assert "SECRET_TOKEN" not in judged.answer.summary


async def test_a_program_is_corrected_once(tmp_path: Path) -> None:
    """The second run gets the whole conversation."""
    code = READS + (
        "if len(asked['messages']) == 1: print('hello')\n"
        "else: print(json.dumps({'verdicts': [], 'summary': asked['messages'][1]['content']}))"
    )
    async with asked(tmp_path) as given:
        judged = await program(tmp_path, code).judge(given.wall)
        assert (judged.status, judged.answer.summary) == ("repaired", "hello")


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        ("import sys; sys.exit(3)", "exited with code 3"),
        ("import os; os.kill(os.getpid(), 9)", "was killed by signal 9"),
        (f"print('x' * {ANSWER_BYTES_MAX + 10})", "more than"),
        ("import time\nwhile True: print('x' * 1000000)", "more than"),
    ],
)
async def test_a_program_that_fails_is_a_failure(tmp_path: Path, code: str, detail: str) -> None:
    """Whatever it does with its input, and however much it prints."""
    async with asked(tmp_path) as given:
        with pytest.raises(ModelFailed, match=detail):
            await program(tmp_path, code).judge(given.wall)


async def test_a_program_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    """It is looked for at each use."""
    missing = Program(argv=("/nowhere/at-all",), cwd=tmp_path, timeout_s=30)
    async with asked(tmp_path) as given:
        with pytest.raises(ModelFailed, match="cannot be started"):
            await ChatModel(CommandChat(missing, {}, on_leash)).judge(given.wall)


async def test_a_program_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    """At the timeout, as a whole session: nothing of it is left."""
    pids = tmp_path / "pids"
    pids.touch()
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(600)"
    )
    async with asked(tmp_path) as given:
        found: list[str] = []
        for timeout_s in TIMEOUTS_S:
            with pytest.raises(ModelFailed, match="did not answer within"):
                await program(tmp_path, code, timeout_s=timeout_s).judge(given.wall)
            if found := pids.read_text().split():
                break
        assert len(found) == 2
        for pid in map(int, found):
            await _end_of(pid)


@pytest.mark.parametrize("own_session", [False, True], ids=["of its session", "of one of its own"])
async def test_a_child_that_holds_the_output_open_costs_no_answer(
    tmp_path: Path, *, own_session: bool
) -> None:
    """The program's exit ends its answer, and its children, whatever session they are in."""
    pids = tmp_path / "pids"
    child = "[sys.executable, '-I', '-S', '-c', 'import time; time.sleep(600)']"
    code = ANSWERS + (
        f"\nimport subprocess\nchild = subprocess.Popen({child}, start_new_session={own_session})\n"
        f"open({str(pids)!r}, 'w').write(str(child.pid))"
    )
    async with asked(tmp_path) as given:
        judged = await program(tmp_path, code, timeout_s=PATIENCE_S).judge(given.wall)
        assert _is_gone(int(pids.read_text()))
        assert effects(given.wall, judged) == [Effect.NONE, Effect.NONE]


def _is_gone(pid: int) -> bool:
    """Whether no such process runs, now."""
    return not Path(f"/proc/{pid}").exists()


async def _end_of(pid: int) -> None:
    """Return once no such process runs."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with anyio.fail_after(PATIENCE_S):
            await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)


CHATS: dict[str, Callable[[Path], Chat]] = {
    "command": lambda folder: CommandChat(Program(argv=("true",), cwd=folder, timeout_s=1), {}, on_leash),
}


@pytest.mark.parametrize("kind", CHATS)
def test_models_say_who_they_are(tmp_path: Path, kind: str) -> None:
    """The name stands in the verdict, and in the actor of each ruling."""
    assert ChatModel(CHATS[kind](tmp_path)).name == kind
    assert RulesModel().name == "rules"
