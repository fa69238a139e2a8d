"""I12 for programs and HTTP APIs: the secrets of `test_canaries`, in all ways that those kinds have to tell.

A program's spool is looked at like every other file that the daemon, or a shim, has written.
"""

import json
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio import to_thread
from anyio.abc import AnyByteStream

from tests.driver.providers.http.site import Request, Site, http, site
from tests.servers.leaky_mcp import EMAIL
from tests.system.history import Json
from tests.system.plane import PATIENCE_S, ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Life, Sandbox, sandbox
from tests.system.test_canaries import (
    ALWAYS_SECRET,
    CALL_CANARIES,
    ENV,
    ENV_FILE,
    IN_ARGUMENTS,
    REDACT,
    SHORT,
    ask,
    hits,
    said,
    written,
)
from tests.system.zygote import ROOT, Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill, pytest.mark.lane]

PROGRAM: Final = ROOT / "tests" / "servers" / "leaky_program.py"
ALL: Final = "=to_string(arguments)"
SECRETS: Final = {**CALL_CANARIES, **ALWAYS_SECRET}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of provider that tells all it knows: its tools, and the calls that make them tell."""

    tools: Mapping[str, Json]
    calls: Sequence[tuple[str, str]]
    """The tool and the mode of each call."""
    redact: Sequence[str]
    """Beside the arguments, what of a result is withheld."""
    provider: Json = field(default_factory=dict[str, Any])


PROGRAMS: Final = Kind(
    tools={
        "tell": {"stdin": ALL},
        "look": {"stdin": "=arguments.deep.list", "effect": "read", "execution_s": 2},
        "wait": {"effect": "read", "execution_s": 600},
        "cut": {"output_max_bytes": 60},
        # refused: what would be quoted is the reason
        "no-list": {"argv": "=arguments.token"},
        "no-program": {"argv": ["=arguments.token"]},
        "no-word": {"argv": ["true", "=arguments.deep"]},
        "no-folder": {"argv": ["true"], "cwd": "=arguments.token"},
        "no-sense": {"argv": ["true", "=abs(arguments.token)"]},
    },
    calls=[
        *(("tell", mode) for mode in ("answer", "fail", "signal", "large")),
        *(("look", mode) for mode in ("answer", "wait")),
        *((tool, "answer") for tool in ("cut", "no-list", "no-program", "no-word", "no-folder", "no-sense")),
    ],
    redact=["result.stderr"],
    provider={"kind": "command"},
)

HTTP: Final = Kind(
    tools={
        "tell": {
            "path": "=['tell', arguments.mode, arguments.token]",
            "query": {"deep": "=arguments.deep.list[*].key", "whole": "=to_string(arguments.whole)"},
            "headers": {
                "X-Token": "=arguments.token",
                "X-Number": "=to_string(arguments.number)",
                "Authorization": "=join(' ', ['Bearer', env.CANARY_FILE])",
            },
            "json": "=arguments",
        },
        "look": {
            "effect": "read",
            "path": "=['look', arguments.mode, arguments.token]",
            "json": "=arguments",
        },
        # refused: what would be quoted is the reason
        "no-header": {"headers": {"X-Key": "=arguments.deep.list[0].key"}},
        "no-path": {"path": "=['..', arguments.token]"},
        "no-method": {"method": "=arguments.token"},
        "no-text": {"query": {"deep": "=arguments.deep"}},
        "no-sense": {"json": "=abs(arguments.token)"},
    },
    calls=[
        *(
            ("tell", mode)
            for mode in ("200", "200-large", "200-text", "200-header", "400", "409", "422", "500")
        ),
        *(("look", mode) for mode in ("302", "502", "hang-up", "garbage", "cut")),
        *((tool, "200") for tool in ("no-header", "no-path", "no-method", "no-text", "no-sense")),
    ],
    redact=["result.json.people.*.email", "result.text", "result.headers.x-person"],
)


async def tells(_site: Site, stream: AnyByteStream, request: Request) -> None:
    """Answer with all that was asked, but for who asked it, as the request's path says."""
    mode = request.target.split("/")[2]
    heard = {name: value for name, value in request.headers.items() if name != "authorization"}
    quoted = f"{request.target} {heard!r} {request.body.decode()} of {EMAIL}"
    person = {"name": "a name", "email": EMAIL}
    times = 2_000 if mode == "200-large" else 1
    body = json.dumps({"people": [person], "quoted": [quoted] * times}).encode()
    match mode:
        case "hang-up":
            await stream.aclose()
        case "garbage":
            await stream.send(f"not HTTP: {quoted}\r\n\r\n".encode())
            await stream.aclose()
        case "cut":
            await stream.send(http(200, body)[:-1])
            await stream.aclose()
        case "200-text":
            await stream.send(http(200, quoted.encode(), kind="text/plain"))
        case "200-header":
            await stream.send(http(200, b"{}", X_Quoted=request.target, X_Person=EMAIL))
        case "302":
            await stream.send(http(302, body, Location=request.target))
        case _:
            await stream.send(http(int(mode[:3]), body))


def tables(
    made: Sandbox, kind: Kind, provider: Mapping[str, object], redact: Sequence[str]
) -> dict[str, Json]:
    """The configuration of a provider of this kind."""
    secret = made.root / "secret"
    secret.write_text(ENV_FILE + "\n")
    secret.chmod(0o600)
    argv = [sys.executable, "-I", "-S", str(PROGRAM), "=arguments.mode", "=arguments.token", ALL]
    found: dict[str, Json] = {
        "log": {"level": "debug"},
        "providers__leaky": {**kind.provider, **provider},
        "providers__leaky__env": {"CANARY": ENV},
        "providers__leaky__env_files": {"CANARY_FILE": str(secret)},
    }
    for name, tool in kind.tools.items():
        usual = {"argv": argv} if kind is PROGRAMS else {}
        words = {key: value for key, value in tool.items() if not isinstance(value, dict)}
        found[f"providers__leaky__tools__{name}"] = {**usual, **words, "redact": list(redact)}
        for key in ("query", "headers"):
            if key in tool:
                found[f"providers__leaky__tools__{name}__{key}"] = tool[key]
    return found


@asynccontextmanager
async def leaking(
    zygote: Zygote, kind: Kind, redact: Sequence[str]
) -> AsyncGenerator[tuple[Sandbox, ScriptedPlane, Life]]:
    """A daemon with a provider that tells all it knows, after one call in each way to do that."""
    async with site(tells) as web, scripted_plane() as plane, sandbox(zygote, plane) as made:
        address = {} if kind is PROGRAMS else {"kind": "http", "base_url": f"http://127.0.0.1:{web.port}"}
        made.configure(**tables(made, kind, address, redact))
        life = made.start()
        for number, (tool, mode) in enumerate(kind.calls):
            await plane.give(call(f"cmd-{number}", f"leaky/{tool}", mode=mode, n=number, **IN_ARGUMENTS))
            receipt = await plane.receipt_of(f"cmd-{number}")
            refused = receipt["kind"] == "operation.not_executed"
            assert refused == tool.startswith("no-"), receipt["data"]
        # a short value withholds every text that quotes it, and would hide what the others let through
        small: Json = {"token": "short", "deep": {"list": []}, "whole": {}, "number": 0, "pin": SHORT}
        mode = "answer" if kind is PROGRAMS else "400"
        await plane.give(call("cmd-pin", "leaky/tell", mode=mode, n=0, **small))
        await plane.receipt_of("cmd-pin")
        yield made, plane, life


KINDS: Final = pytest.mark.parametrize("kind", [PROGRAMS, HTTP], ids=["programs", "http"])


@KINDS
async def test_no_byte_that_the_daemon_writes_holds_a_secret(zygote: Zygote, kind: Kind) -> None:
    """Events, log, journal, spool, local API, command line: while it runs, and after it has stopped."""
    async with leaking(zygote, kind, [*REDACT, *kind.redact]) as (made, plane, life):
        answers = await ask(made, plane)
        assert list(hits(answers, SECRETS)) == []
        assert list(hits(said(plane), SECRETS)) == []
        assert await life.stop() == 0
        files = await to_thread.run_sync(written, made)
        assert {"state/journal.db", "state/digest.key", "output-0"} <= files.keys()
        assert list(hits(files, SECRETS)) == []


@KINDS
async def test_what_is_not_declared_is_found_everywhere(zygote: Zygote, kind: Kind) -> None:
    """Negative control: without `redact` the same search finds each secret of a call, and no other."""
    async with leaking(zygote, kind, []) as (made, plane, life):
        answers = await ask(made, plane)
        assert await life.stop() == 0
        files = await to_thread.run_sync(written, made)
        in_events = {name for place, name in hits(said(plane), CALL_CANARIES) if place == "events"}
        assert in_events == set(CALL_CANARIES)
        assert {name for _, name in hits(answers, CALL_CANARIES)} == set(CALL_CANARIES)
        assert "state/journal.db" in {place for place, _ in hits(files, CALL_CANARIES)}
        assert list(hits({**files, **answers, **said(plane)}, ALWAYS_SECRET)) == []


async def test_the_spool_of_a_killed_daemon_is_erased_by_the_next(zygote: Zygote) -> None:
    """A program under way has said its secrets to a file. Once its outcome is known, no file has them."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        made.configure(**tables(made, PROGRAMS, {}, [*REDACT, *PROGRAMS.redact]))
        life = made.start()
        await plane.give(call("cmd-1", "leaky/wait", mode="wait", **IN_ARGUMENTS))
        await spoken(made)
        await life.kill()
        held = {place for place, _ in hits(await to_thread.run_sync(written, made), SECRETS)}
        outputs = {place for place in held if Path(place).name in ("stdout", "stderr")}
        assert {Path(place).name for place in outputs} == {"stdout", "stderr"}
        assert held - outputs <= {"state/journal.db", "state/journal.db-wal"}
        life = made.start()
        await life.ready()
        cancel = {"command_id": "cancel-1", "run_id": "run-1", "kind": "command.cancel"}
        await plane.give({"type": "command", **cancel, "data": {"target_command_id": "cmd-1"}})
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.unknown"
        assert await life.stop() == 0
        files = await to_thread.run_sync(written, made)
        assert list(hits({**files, **said(plane)}, SECRETS)) == []
        assert not [place for place in files if "spool" in place]


async def spoken(made: Sandbox) -> None:
    """Return once the program has said what it knows."""
    with anyio.fail_after(PATIENCE_S):
        while not (made.state / "work" / "waits").exists():  # noqa: ASYNC110 - the program cannot tell us
            await anyio.sleep(0.02)
