"""What a person reads: golden text for the questions that are asked at three in the morning."""

import io
import re
import shlex
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import get_args, get_type_hints

import pytest
from rich.console import Console, RenderableType

from driver.cli.hints import HINTS, hints_for
from driver.cli.main import COMMANDS
from driver.cli.plain import plain
from driver.cli.replies import (
    Attempt,
    Command,
    Delivery,
    Event,
    Evidence,
    Incidents,
    Link,
    Operation,
    Page,
    Status,
    Story,
)
from driver.cli.story import story_lines
from driver.cli.views import (
    event_line,
    no_operations_line,
    operation_table,
    status_lines,
    unsettled_lines,
    value_text,
)
from driver.cli.words import REASONS, certainty, duration, size
from driver.cli.words import effect as effect_words
from driver.cli.words import state as state_words
from store.events import OperationNotExecuted, OperationUnknown
from store.lifecycle import Effect, Source, State
from store.records import Origin

NOW = datetime(2026, 11, 29, 14, 43, 20, tzinfo=UTC)
ID = "op_5d" + "0" * 30


def lost(**changes: object) -> Operation:
    """An operation of which nobody knows whether it happened."""
    members: dict[str, object] = {
        "operation_id": ID,
        "command_id": "cmd-9",
        "run_id": "run-1",
        "origin": "plane",
        "tool": "issues/create_issue",
        "state": "unknown",
        "effect": "unknown",
        "effect_by": None,
        "best_effort": False,
        "settled": False,
        "reason": "crash_window",
        "receipt": None,
        "attempt_count": 1,
        "metadata": None,
        "accepted_at": "2026-11-29T10:40:18.900000Z",
        "started_at": "2026-11-29T10:40:18.925541Z",
        "ended_at": "2026-11-29T10:40:19.000001Z",
        "deadline_at": "2026-11-29T10:41:18.000000Z",
    }
    return Operation.model_validate(members | changes)


def shown(renderings: Iterable[RenderableType], width: int = 10_000) -> str:
    """Return what a pipe, or a terminal of that width, would get, without the spaces at the ends of lines."""
    out = io.StringIO()
    screen = Console(file=out, width=width, highlight=False, markup=False, emoji=False)
    for rendering in renderings:
        screen.print(rendering)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def page(*items: Operation, cursor: str | None = None) -> Page[Operation]:
    """Return a page of operations."""
    return Page[Operation](items=items, next=cursor, truncated=cursor is not None)


UNSETTLED = f"""\
1 unsettled, newest first.

{ID}  issues/create_issue
  effect      MAY HAVE HAPPENED: nobody has said whether it did
  state       unknown: no answer is recorded
  why         crash_window: the daemon died after the call may have left, and before an answer was recorded
  since       2026-11-29 10:40:19Z (4 h 3 min ago)
  run         run-1, command cmd-9 from the plane
  next        Look in the provider whether it happened: the call carried the key {ID}.
              An answer that still arrives is recorded, and settles it by itself.
              Nothing runs it again by itself: the same command, redelivered, gets this receipt, \
and an equal call of the same run is refused (unless it says `repeat`).
              record what you found, as EFFECT none, occurred or unknown; it executes nothing:
                effectd reconcile {ID} --effect EFFECT --note TEXT --config x.toml
              its whole story, and whether it can be probed, retried or taken back:
                effectd show {ID} --config x.toml
"""


def test_an_unsettled_operation_says_what_how_sure_since_when_why_and_what_next() -> None:
    """Who is woken by it needs nothing else to begin."""
    assert shown(unsettled_lines(page(lost()), NOW, " --config x.toml")) == UNSETTLED


def test_what_an_agent_cannot_say_is_not_advised() -> None:
    """`repeat` is a word of planes: an agent's equal call is refused, and that is all there is to it."""
    advised = {origin: " ".join(text for _, text in hints_for(lost(origin=origin))) for origin in Origin}
    assert {origin for origin, text in advised.items() if "repeat" in text} == {Origin.PLANE, Origin.LOCAL}
    assert all("is refused" in text for text in advised.values())


def test_a_suggested_command_says_the_same_to_a_shell() -> None:
    """It is copied whole: a pipe in it would run what stands behind it."""
    operation = lost(
        state="awaiting_approval", allowed=("probe", "retry", "compensate", "reconcile", "override")
    )
    commands = [
        command for each in (lost(), operation) for command, _ in hints_for(each) if command is not None
    ]
    lexers = [shlex.shlex(command, posix=True, punctuation_chars=True) for command in commands]
    assert [list(lexer) for lexer in lexers] == [command.split() for command in commands]
    assert all(set(command).isdisjoint("|&;<>()$`*?[]!{}~#") for command in commands)


def test_the_story_does_not_send_anybody_to_itself() -> None:
    """`show` advises every other command, and not `show`."""
    assert [
        command for command, _ in hints_for(lost(), within="show") if "effectd show" in (command or "")
    ] == []
    assert [command for command, _ in hints_for(lost()) if "effectd show" in (command or "")] != []


def test_a_list_that_does_not_fit_is_lines_with_whole_ids() -> None:
    """No column is squeezed to nothing, and no id is broken: each entry has lines of its own."""
    listed = operation_table(page(lost(), lost(reason=None)), NOW)
    narrow = io.StringIO()
    Console(file=narrow, width=80, highlight=False).print(listed)
    lines = narrow.getvalue().splitlines()
    assert [line for line in lines if line.strip() == ID] == [
        line for line in lines if line.startswith("op_")
    ]
    assert "tool=issues/create_issue" in narrow.getvalue()
    assert "reason=crash_window" in narrow.getvalue()
    assert narrow.getvalue().count("reason") == 1
    assert "TOOL" in shown([listed])
    assert max(map(len, lines)) <= 80


def test_nothing_unsettled_is_good_news() -> None:
    """An empty list is said in words, not shown as an empty table."""
    assert shown(unsettled_lines(page(), NOW, " --config x.toml")) == (
        "Nothing is unsettled.\n"
        "  What stays unknown by a verdict: effectd ops --effect unknown --config x.toml\n"
    )
    assert "No operations yet" in no_operations_line(page(), filtered=False).plain
    assert "No operations match" in no_operations_line(page(), filtered=True).plain


def test_an_empty_page_that_is_not_the_last_promises_nothing() -> None:
    """The journal is looked through in parts, and the rest may hold some."""
    text = shown(unsettled_lines(page(cursor="x"), NOW))
    assert "Nothing is unsettled" not in text
    assert "not looked through yet" in text


def test_a_part_of_the_unsettled_does_not_look_like_all() -> None:
    """A page that is not the last says so."""
    assert shown(unsettled_lines(page(lost(), cursor="x"), NOW)).startswith("More than 1 unsettled")


@pytest.mark.parametrize(
    ("changes", "words_"),
    [
        ({"effect_by": "supervisor", "best_effort": True, "effect": "none"}, "best effort: not proof"),
        ({"effect_by": "operator", "effect": "occurred", "settled": True}, "happened, says an operator"),
        ({"effect_by": "operator", "settled": True}, "MAY HAVE HAPPENED, says an operator"),
        ({"state": "started", "ended_at": None}, "not ended yet"),
    ],
)
def test_an_effect_names_who_says_so(changes: dict[str, object], words_: str) -> None:
    """A guess never reads like proof."""
    assert words_ in effect_words(lost(**changes))


def test_a_tool_name_cannot_rewrite_the_terminal() -> None:
    """Escape sequences, newlines and invisible characters are shown, not obeyed."""
    evil = lost(tool="a/\x1b[2J\u202e\nb", metadata={"title": "\x9b31m\x07"})
    text = shown(unsettled_lines(page(evil), NOW)) + shown([operation_table(page(evil), NOW)])
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert "\u202e" not in text
    assert r"a/\x1b[2J\u202e\nb" in text


def test_markup_in_a_name_is_only_text() -> None:
    """Square brackets mean nothing."""
    assert "[bold]x[/bold]" in shown(unsettled_lines(page(lost(tool="[bold]x[/bold]")), NOW))


@pytest.mark.parametrize(
    ("text", "safe"),
    [("plain ü", "plain ü"), ("a\tb", r"a\tb"), ("\ud800", r"\ud800"), ("\U000e0001", r"\U000e0001")],
)
def test_what_does_not_print_is_escaped(text: str, safe: str) -> None:
    """Everything else stays as it is."""
    assert plain(text) == safe


def test_every_reason_has_its_words() -> None:
    """A reason that an event can have is explained to a person."""
    reasons = {
        reason
        for event in (OperationUnknown, OperationNotExecuted)
        for reason in get_args(get_type_hints(event)["reason"])
    }
    assert set(REASONS) == reasons


def test_every_state_has_its_words() -> None:
    """A state is never shown as a bare word."""
    assert all(state_words(state) != state for state in State)


def test_hints_name_only_commands_that_exist() -> None:
    """Advice that cannot be followed is worse than none."""
    named = [hint.command.split()[1] for hint in HINTS if hint.command is not None]
    assert named
    assert set(named) <= set(COMMANDS)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.9, "0 s"), (61, "1 min 1 s"), (3_600, "1 h"), (90_061, "1 d 1 h"), (-5, "0 s")],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    """Nobody counts seconds of a day."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (12_345, "12.3 kB"), (5e12, "5.0 TB")]
)
def test_a_size_has_one_unit(count: int, text: str) -> None:
    """Bytes are for machines."""
    assert size(int(count)) == text


STORY = f"""\
{ID}  issues/create_issue
  effect      MAY HAVE HAPPENED: nobody has said whether it did
  state       unknown: no answer is recorded
  why         crash_window: the daemon died after the call may have left, and before an answer was recorded
  since       2026-11-29 10:40:19Z (4 h 3 min ago)
  run         run-1, command cmd-9 from the plane
  sure        not at all: no evidence says anything yet

2026-11-29 (UTC)
  10:40:18.900  delivered: answered accepted
  10:40:18.900  command cmd-9 accepted (event 12)
  10:40:18.925  attempt 1: intent recorded (event 13), key {ID} carried by meta, deadline 2026-11-29 10:41:18Z
  10:40:19.000  attempt 1: unknown, last phase written: crash_window: the daemon died after the call may \
have left, and before an answer was recorded
  10:40:19.000  ended unknown; its receipt is event 14 (operation.unknown)
2026-11-30 (UTC)
  00:00:01.000  delivered: answered repeated
  00:00:02.000  evidence for attempt 1: it happened, says an operator operator:alice (event 20)

  arguments   {{"title": "\\u001b[2J"}}
  result      none recorded
  events      12, 13, 14, 20
"""


def test_a_story_is_told_in_the_order_of_time() -> None:
    """From the command to the last evidence, whatever part of the answer each stands in."""
    told = Story(
        **lost().model_dump(),
        args_digest="d" * 64,
        arguments={"title": "\x1b[2J"},
        result=None,
        command=Command(
            kind="tool.call",
            accepted_seq=12,
            accepted_at=datetime(2026, 11, 29, 10, 40, 18, 900_000, tzinfo=UTC),
            expires_at=None,
            receipt_seq=14,
            receipt_kind="operation.unknown",
        ),
        deliveries=(
            Delivery(at=datetime(2026, 11, 29, 10, 40, 18, 900_000, tzinfo=UTC), answer="accepted"),
            Delivery(at=datetime(2026, 11, 30, 0, 0, 1, tzinfo=UTC), answer="repeated"),
        ),
        attempts=(
            Attempt(
                attempt=1,
                idempotency_key=ID,
                key_carrier="meta",
                started_seq=13,
                started_at=datetime(2026, 11, 29, 10, 40, 18, 925_541, tzinfo=UTC),
                deadline_at=datetime(2026, 11, 29, 10, 41, 18, tzinfo=UTC),
                phase="written",
                outcome="unknown",
                reason="crash_window",
                ended_at=datetime(2026, 11, 29, 10, 40, 19, 1, tzinfo=UTC),
                duration_ms=None,
            ),
        ),
        evidence=(
            Evidence(
                attempt=1,
                seq=20,
                at=datetime(2026, 11, 30, 0, 0, 2, tzinfo=UTC),
                effect=Effect.OCCURRED,
                source="operator",
                actor="operator:alice",
            ),
        ),
        events=(12, 13, 14, 20),
    )
    text = shown(story_lines(told, NOW))
    assert text.startswith(STORY)
    assert f"effectd reconcile {ID}" in text
    history = shown(story_lines(told, NOW), 80).partition("(UTC)\n")[2].partition("\n\n")[0].splitlines()
    assert all(re.match(r"  \d\d:\d\d:\d\d\.\d{3}  \S| {16}\S|\d{4}-\d\d-\d\d ", line) for line in history), (
        history
    )
    erased = told.model_copy(update={"arguments": None})
    assert "\n  arguments   erased\n" in shown(story_lines(erased, NOW))


def test_what_came_after_the_end_is_told_where_it_belongs() -> None:
    """Looks, late answers, verdicts with who and why, contradictions, notes of the host, and children."""
    at = "2026-11-29T10:50:00.00000"
    told = Story.model_validate(
        lost(effect="occurred", effect_by="provider", settled=True).model_dump()
        | {
            "args_digest": "d" * 64,
            "arguments": {},
            "result": None,
            "deliveries": (),
            "attempts": (),
            "evidence": [
                {"attempt": 1, "seq": seq, "at": f"{at}{seq - 20}Z", "effect": effect, "source": source}
                | {"actor": actor}
                for seq, effect, source, actor in (
                    (22, "none", "operator", "operator:1000"),
                    (23, "occurred", "provider", None),
                )
            ],
            "events": (21, 22, 23, 24, 25),
            "probes": [
                {
                    "seq": 21,
                    "at": f"{at}1Z",
                    "verdict": "undetermined",
                    "matches": None,
                    "detail": "no answer",
                }
            ],
            "verdicts": [
                {"seq": 22, "at": f"{at}2Z", "effect": "none", "actor": "operator:1000", "label": "ann"}
                | {"note": "not there\x1b[2J", "evidence": ["ticket 7"]}
            ],
            "late_results": [{"seq": 23, "at": f"{at}3Z", "attempt": 1, "effect": "occurred"}],
            "divergences": [{"seq": 24, "at": f"{at}4Z", "evidence": [9, 23], "detail": "9 and 23 differ"}],
            "annotations": [{"seq": 25, "at": f"{at}5Z", "metadata": {"id": "42"}}],
            "parent_operation_id": "op_parent",
            "child_run_id": "child",
            "child_ops_total": 3,
            "child_ops_unresolved": 1,
            "allowed": ["override", "annotate"],
        }
    )
    text = shown(story_lines(told, NOW))
    after = text.partition("2026-11-29 (UTC)\n")[2]
    assert [line.split("  ")[2] for line in after.splitlines()[2:7]] == [
        "probe: undetermined: no answer (event 21)",
        r"verdict of operator:1000 (ann): it did not happen: not there\x1b[2J [ticket 7] (event 22)",
        "late answer to attempt 1: it happened (event 23)",
        "DIVERGED: 9 and 23 differ (event 24)",
        'annotated: {"id": "42"} (event 25)',
    ]
    assert "\n  sure        proof: the provider answered\n" in text
    assert "\n  DIVERGED    9 and 23 differ: somebody should look\n" in text
    twice = told.probes[0].model_copy(update={"verdict": "duplicated", "matches": 2})
    text_twice = shown(story_lines(told.model_copy(update={"probes": (twice,)}), NOW))
    assert "DUPLICATED  a probe found it 2 times: somebody should look (event 21)" in text_twice
    assert "\n  child run   child: 3 operations, 1 of them unresolved\n" in text
    assert "--note TEXT --override" in text


@pytest.mark.parametrize(
    ("allowed", "advised"), [(["annotate"], False), (["reconcile", "annotate"], True), (None, True)]
)
def test_advice_is_what_the_daemon_would_take(allowed: list[str] | None, advised: bool) -> None:
    """Where it said so; a list does not say, and advises what holds for everything unsettled."""
    commands = [command for command, _ in hints_for(lost(allowed=allowed)) if command is not None]
    assert any(command.startswith("effectd reconcile") for command in commands) is advised


def test_the_word_of_each_source_says_what_it_is_worth() -> None:
    """From proof to a guess; before the end there is nothing to be sure of."""
    words_ = {source: certainty(lost(effect_by=source.value)) for source in Source}
    assert None not in words_.values()
    assert len(set(words_.values())) == len(Source)
    assert certainty(lost(state="started")) is None


def test_a_long_value_is_cut_and_says_so() -> None:
    """The terminal gets a beginning, and where the rest is."""
    assert value_text("x" * 500).endswith("… (502 characters; --json has them all)")


def test_an_event_is_one_line() -> None:
    """What it is about, and the facts that fit."""
    event = Event.model_validate(
        {
            "journal_id": "e" * 32,
            "seq": 14,
            "kind": "operation.unknown",
            "at": "2026-11-29T10:40:19.000001Z",
            "run_id": "run-1",
            "command_id": "cmd-9",
            "operation_id": ID,
            "terminal": True,
            "best_effort": False,
            "data": {"effect": "unknown", "reason": "crash_window", "phase": "written", "attempts": 1},
        }
    )
    assert shown([event_line(event)]) == (
        f"      14  2026-11-29 10:40:19.000Z  operation.unknown             {ID}  run=run-1"
        "  effect=unknown  reason=crash_window  phase=written\n"
    )


STATUS = Status.model_validate(
    {
        "state": "ready",
        "driver_id": "sbx-7",
        "journal_id": "a" * 32,
        "boot_id": "b" * 32,
        "link": {"connected": False, "since": None, "url": None},
        "last_seq": 14,
        "acked_seq": 12,
        "counts": {"succeeded": 3, "unknown": 1, "failed": 0},
        "unsettled": 1,
        "oldest_unsettled_age_s": 61.5,
        "journal": {"bytes": 40_960, "wal_bytes": 0, "last_commit_at": "2026-11-29T14:43:09Z"},
        "fence": None,
        "integrity": "ok",
        "fault_injection": [],
    }
)


def test_a_status_without_room_says_so_first() -> None:
    """The daemon is up, and takes no new call."""
    full = STATUS.model_copy(update={"journal": STATUS.journal.model_copy(update={"has_room": False})})
    second = shown(status_lines(full, NOW)).splitlines()[1]
    assert second.startswith("  NO ROOM")
    assert "no_room" in second


def test_a_status_says_what_is_wrong() -> None:
    """What is unsettled stands there with its age, and the command that shows it."""
    assert shown(status_lines(STATUS, NOW)) == (
        "effectd sbx-7 is ready\n"
        "  unsettled   1, the oldest for 1 min 1 s: see 'effectd ops --unsettled'\n"
        "  link        none: stand-alone\n"
        "  operations  3 succeeded, 1 unknown\n"
        "  events      14\n"
        "  journal     41.0 kB, and 0 B of wal; last commit 2026-11-29 14:43:09Z (11 s ago)\n"
        "  integrity   ok\n"
        f"  journal_id  {'a' * 32}\n"
        f"  boot_id     {'b' * 32}\n"
    )


def test_a_link_that_is_down_is_loud() -> None:
    """Since when, why, and how much waits for it; what a peer said moves no terminal."""
    why = "closed with 1008 (\x1b[2Jgo away)"
    link = Link(connected=False, since=NOW, url="wss://plane.example", last_error=why)
    text = shown(status_lines(STATUS.model_copy(update={"link": link}), NOW))
    assert "NOT CONNECTED since 2026-11-29 14:43:20Z (0 s ago): wss://plane.example: closed with 1008" in text
    assert "\x1b" not in text
    assert "14, of which 2 not acknowledged" in text
    named = link.model_copy(update={"last_error": "wss://plane.example answered HTTP 403"})
    text = shown(status_lines(STATUS.model_copy(update={"link": named}), NOW))
    assert "(0 s ago): wss://plane.example answered HTTP 403\n" in text


def test_a_fence_and_a_fault_drill_are_loud() -> None:
    """They stand right behind the state."""
    fenced = STATUS.model_copy(
        update={"state": "fenced", "fence": "superseded", "fault_injection": ("kill_at",)}
    )
    text = shown(status_lines(fenced, NOW)).splitlines()
    assert text[0] == "effectd sbx-7 is fenced"
    assert text[1].startswith("  fence       superseded: it dispatches nothing, and refuses commands;")
    assert "'effectd unfence --help'" in text[1]
    assert text[2] == "  FAULT DRILL kill_at"


def test_what_somebody_should_look_into_is_said() -> None:
    """Dead letters, contradictions and duplicates have a line each, and none where there is nothing."""
    incidents = Incidents(diverged=1, duplicated=2)
    text = shown(status_lines(STATUS.model_copy(update={"dead_letters": 3, "incidents": incidents}), NOW))
    assert "3 events that the plane did not take" in text
    assert "1 diverged" in text
    assert "2 duplicated" in text
    assert "INCIDENTS" not in shown(status_lines(STATUS, NOW))
