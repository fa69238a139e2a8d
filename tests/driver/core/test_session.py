"""The link session, as transcripts: what comes in, and what is ordered for it."""

from collections.abc import Callable

import pytest

from driver.core.answers import Repeat, Reply, Silent
from driver.core.codec import render
from driver.core.frames import CommandFrame, Refused
from driver.core.session import HELD_MAX, RETRY_AFTER_MS, RETRY_AFTER_MS_MAX, Phase
from driver.core.signals import (
    Acknowledge,
    AnnounceFrameBytes,
    Answered,
    ChainRead,
    Closed,
    CloseLink,
    Committed,
    Deliver,
    EventsRead,
    FenceReason,
    HistoryConfirmed,
    LiftFence,
    Note,
    Opened,
    Order,
    Park,
    PauseStream,
    RaiseFence,
    ReadChain,
    ReadEvents,
    Received,
    Resumed,
    Send,
)
from driver.core.stream import FLIGHT_BYTES_MAX, PAGE_BYTES_MAX, PAGE_EVENTS_MAX, WINDOW_MAX
from store.chain import origin
from store.records import Chain, CommandId, RunId
from tests.driver.core.playbook import (
    JOURNAL,
    Playbook,
    a,
    an_event,
    erased,
    error,
    frame,
    hello,
    history,
    says,
    sent,
    streaming,
    welcome,
)

COMMAND = CommandFrame(command_id=CommandId("cmd-1"), run_id=RunId("run-1"), kind="run.end")
DELIVERED = Received(render(COMMAND))
OTHER = Chain("0" * 32)


def read(after: int, limit: int) -> ReadEvents:
    """The order to read a page."""
    return ReadEvents(after=after, limit=limit, bytes_max=PAGE_BYTES_MAX)


def fence(reason: FenceReason) -> Callable[[Order], bool]:
    """Any fence with this reason."""
    return lambda order: isinstance(order, RaiseFence) and order.reason is reason


# ------------------------------------------------------------ handshake


def test_an_empty_journal_is_welcomed_and_confirmed() -> None:
    """A watermark of 0 needs no chain: the history is confirmed at once."""
    assert (
        Playbook()
        >> Opened(hello())
        << Send(render(hello()))
        >> welcome()
        << AnnounceFrameBytes(65_536)
        << HistoryConfirmed()
    )


def test_the_watermark_is_held_against_the_chain() -> None:
    """With a watermark above 0, nothing is confirmed before the journal's chain was compared."""
    events = history(3)
    assert (
        Playbook(Opened(hello(last_seq=3, acked_seq=3)))
        >> welcome(3, events[2].chain)
        << ReadChain(3)
        >> ChainRead(3, events[2].chain)
        << AnnounceFrameBytes(65_536)
        << HistoryConfirmed()
    )


@pytest.mark.parametrize("mine", [0, 1, 3])
def test_the_planes_watermark_wins(mine: int) -> None:
    """Lower or higher than the journal's own, it is recorded, and the stream begins behind it."""
    events = history(3)
    assert (
        Playbook(Opened(hello(last_seq=3, acked_seq=mine)))
        >> welcome(2, events[1].chain)
        << ReadChain(2)
        >> ChainRead(2, events[1].chain)
        << AnnounceFrameBytes(65_536)
        << HistoryConfirmed()
        << Acknowledge(2)
        << read(2, 8)
        >> EventsRead(2, events[2:])
        << sent(events[2])
    )


def test_a_watermark_above_the_journals_end_is_a_rollback() -> None:
    """The plane holds events that this journal does not have: it fences, and confirms nothing."""
    playbook = Playbook(Opened(hello(last_seq=3, acked_seq=3))) >> welcome(4, OTHER)
    assert playbook << fence(FenceReason.ROLLED_BACK)
    assert playbook.session.phase is Phase.FENCED


def test_what_was_committed_since_hello_does_not_hide_a_rollback() -> None:
    """The plane cannot have seen what was committed since: the end that hello named counts."""
    events = history(5)
    playbook = Playbook(Opened(hello(last_seq=3)), Committed(events[3:])) >> welcome(4, events[3].chain)
    assert playbook << fence(FenceReason.ROLLED_BACK)


def test_another_chain_at_the_watermark_is_a_fork() -> None:
    """Same length, other history: it fences."""
    playbook = Playbook(Opened(hello(last_seq=3))) >> welcome(3, OTHER) << ReadChain(3)
    assert playbook >> ChainRead(3, history(3)[2].chain) << fence(FenceReason.FORKED)


def test_a_pruned_watermark_is_a_gap_and_no_fork() -> None:
    """Where the chain at the watermark was pruned there is nothing to compare, and the stream goes on."""
    assert (
        Playbook(Opened(hello(last_seq=3, acked_seq=3)))
        >> welcome(1, OTHER)
        << ReadChain(1)
        >> ChainRead(1, None)
        << AnnounceFrameBytes(65_536)
        << HistoryConfirmed()
        << Acknowledge(1)
        << read(1, 8)
    )


def test_a_watermark_without_a_chain_is_a_malformed_welcome() -> None:
    """`acked_chain` is required above 0: an error is the answer, and a better welcome is waited for."""
    bad = says(type="welcome", session_id="s", acked_seq=3, window=8, max_frame_bytes=65_536)
    playbook = Playbook(Opened(hello(last_seq=3))) >> bad << a(Note) << error("invalid_frame")
    assert playbook.session.phase is Phase.GREETING
    assert playbook >> welcome() << AnnounceFrameBytes(65_536) << HistoryConfirmed() << read(0, 8)


def test_a_second_welcome_is_an_error() -> None:
    """A connection is welcomed once; the second changes nothing."""
    assert streaming() >> welcome(window=1) << a(Note) << error("unexpected_frame")


@pytest.mark.parametrize(
    "early",
    [
        says(type="ack", seq=1),
        says(type="nack", seq=1, code="busy"),
        DELIVERED,
        Received("{}"),
        Received(b"{}"),
    ],
)
def test_nothing_but_errors_goes_out_before_welcome(early: Received) -> None:
    """Whatever the plane says before `welcome`, the daemon answers with `error` at most."""
    playbook = Playbook(Opened(hello())) >> early
    frames = [order for order in playbook.pending if not isinstance(order, Note)]
    assert len(frames) == 1
    assert frame(type="error")(frames[0])


def test_events_wait_for_the_welcome() -> None:
    """What is committed while the handshake is under way is sent after it, in its place."""
    events = history(2)
    assert (
        Playbook(Opened(hello()))
        >> Committed(events)
        >> welcome()
        << AnnounceFrameBytes(65_536)
        << HistoryConfirmed()
        << read(0, 8)
        >> EventsRead(0, events)
        << sent(events[0])
        << sent(events[1])
    )


def test_a_rejection_closes_the_link() -> None:
    """`reject` is noted with its reason, and the socket is closed."""
    assert (
        Playbook(Opened(hello()))
        >> says(type="reject", code="unsupported_protocol", message="speak 2")
        << Note("rejected", "unsupported_protocol", "speak 2")
        << CloseLink(1000, "rejected: unsupported_protocol")
    )


def test_a_rejection_of_any_length_fits_into_a_close_frame() -> None:
    """A close frame has room for 123 bytes; the plane's words are cut to it, not sent to fail there."""
    code = "\N{FIRE}" * 100
    assert (
        Playbook(Opened(hello()))
        >> says(type="reject", code=code, message="x" * 10_000)
        << Note("rejected", code, "x" * 499 + "…")
        << CloseLink(1000, "rejected: " + "\N{FIRE}" * 28)
    )


def test_commands_wait_until_the_history_is_confirmed() -> None:
    """A command that comes while the chain is looked up is delivered once the journal is confirmed."""
    events = history(1)
    assert (
        Playbook(Opened(hello(last_seq=1, acked_seq=1)))
        >> welcome(1, events[0].chain)
        << ReadChain(1)
        >> DELIVERED
        >> ChainRead(1, events[0].chain)
        << AnnounceFrameBytes(65_536)
        << HistoryConfirmed()
        << Deliver(COMMAND)
    )


def test_commands_held_before_a_fork_are_refused() -> None:
    """A command that came before the fork was seen is answered with `fenced`, and is not delivered."""
    playbook = Playbook(Opened(hello(last_seq=1)), welcome(1, OTHER)) >> DELIVERED
    assert (
        playbook
        >> ChainRead(1, history(1)[0].chain)
        << fence(FenceReason.FORKED)
        << frame(type="refused", code="fenced", command_id="cmd-1")
    )


def test_held_frames_are_bounded() -> None:
    """A plane that floods the moment of the chain's look-up is asked to come back."""
    playbook = Playbook(Opened(hello(last_seq=1)), welcome(1, OTHER))
    for _ in range(HELD_MAX):
        assert playbook >> DELIVERED
    assert playbook >> DELIVERED << a(CloseLink)


# ------------------------------------------------------------ bad frames


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b'{"type":"ack","seq":1}', "binary_frame"),
        ('{"type":"ack","seq":1', "invalid_json"),
        ('{"type":"ack","seq":1,"seq":2}', "duplicate_key"),
        ('{"type":"ack","seq":NaN}', "not_finite"),
        ('{"type":"ack","seq":1e999}', "not_finite"),
        ('{"type":"ack","x":"\\ud800"}', "lone_surrogate"),
        ("[" * 100_000, "too_deep"),
        ('{"type":"ack","x":' + "[" * 64 + "]" * 64 + "}", "too_deep"),
        ("[]", "not_an_object"),
        ('{"seq":1}', "invalid_frame"),
        ('{"type":7}', "invalid_frame"),
        ('{"type":"hug"}', "unknown_type"),
        ('{"type":"hello"}', "unknown_type"),
        ('{"type":"ack","seq":true}', "invalid_frame"),
        ('{"type":"ack","seq":-1}', "invalid_frame"),
        (
            '{"type":"command","command_id":"a b","run_id":"r","kind":"run.end","data":{}}',
            "invalid_command_id",
        ),
        (
            '{"type":"command","command_id":"compensate:x","run_id":"r","kind":"run.end"}',
            "invalid_command_id",
        ),
    ],
)
def test_a_bad_frame_is_answered_and_the_stream_goes_on(data: str | bytes, code: str) -> None:
    """Every malformed frame gets an `error` that names what is wrong, and hurts nothing."""
    event = history(1)[0]
    assert (
        streaming()
        >> Received(data)
        << a(Note)
        << error(code)
        >> Committed((event,))
        << sent(event)
        >> says(type="ack", seq=1)
        << Acknowledge(1)
    )


def test_the_planes_errors_are_noted_and_never_answered() -> None:
    """An answer to an `error` could be the beginning of an endless exchange."""
    assert streaming() >> says(type="error", code="odd", message="?") << Note("plane_error", "odd", "?")


def test_a_malformed_command_with_an_id_goes_to_the_engine() -> None:
    """A command that is wrong but has a usable id is refused for good, by the engine, which remembers it."""
    playbook = streaming() >> says(type="command", command_id="c", run_id="r", kind="run.end", data=[])
    assert playbook << a(Deliver)


# ------------------------------------------------------------ the stream


def test_a_committed_event_goes_straight_out() -> None:
    """The hot path: what follows the stream's position is sent from memory, without a read."""
    events = history(3)
    assert (
        streaming()
        >> Committed(events[:2])
        << sent(events[0])
        << sent(events[1])
        >> Committed(events[2:])
        << sent(events[2])
    )


def test_the_window_bounds_what_is_in_flight() -> None:
    """With the window full, nothing is sent; an acknowledgement makes room, and what waits is read back."""
    events = history(4)
    assert (
        streaming(window=2)
        >> Committed(events)
        << sent(events[0])
        << sent(events[1])
        >> says(type="ack", seq=1)
        << Acknowledge(1)
        << read(2, 1)
        >> EventsRead(2, events[2:3])
        << sent(events[2])
        >> says(type="ack", seq=3)
        << Acknowledge(3)
        << read(3, 2)
        >> EventsRead(3, events[3:])
        << sent(events[3])
    )


def test_a_huge_window_is_cut_to_what_this_end_keeps_account_of() -> None:
    """However wide the plane's window, events in flight are bounded, and a page is too."""
    events = history(1)
    playbook = Playbook(Opened(hello(last_seq=10_000))) >> welcome(window=2**40)
    assert (
        playbook << a(AnnounceFrameBytes) << a(HistoryConfirmed) << read(0, min(WINDOW_MAX, PAGE_EVENTS_MAX))
    )
    assert (
        playbook >> EventsRead(0, events) << sent(events[0]) << read(1, min(WINDOW_MAX - 1, PAGE_EVENTS_MAX))
    )


def test_bytes_in_flight_are_bounded_too() -> None:
    """A plane that does not acknowledge cannot make this end hold more than a named number of bytes."""
    playbook = streaming(window=1_000, limit=2**22)
    last, flown, seq = origin(JOURNAL), 0, 0
    while flown < FLIGHT_BYTES_MAX:
        seq += 1
        event = an_event(seq, last, size=1_000_000)
        assert event.body is not None
        last, flown = event.chain, flown + len(event.body)
        assert playbook >> Committed((event,)) << sent(event)
    assert playbook >> Committed((an_event(seq + 1, last),))
    assert playbook >> says(type="ack", seq=1) << Acknowledge(1) << read(seq, PAGE_EVENTS_MAX)


def test_only_one_read_is_under_way() -> None:
    """Commits during a read are not sent out of order, and start no second read."""
    events = history(3)
    playbook = Playbook(Opened(hello(last_seq=1)), welcome())
    assert (
        playbook
        >> Committed(events[1:2])
        >> Committed(events[2:])
        >> EventsRead(0, events[:1])
        << sent(events[0])
        << read(1, 7)
        >> EventsRead(1, events[1:])
        << sent(events[1])
        << sent(events[2])
    )


# ------------------------------------------------------------ acknowledgements


def test_repeated_and_stale_acks_are_ignored() -> None:
    """An ack at or below the watermark changes nothing, and is no error."""
    events = history(2)
    assert (
        streaming()
        >> Committed(events)
        << sent(events[0])
        << sent(events[1])
        >> says(type="ack", seq=2)
        << Acknowledge(2)
        >> says(type="ack", seq=2)
        >> says(type="ack", seq=1)
        >> says(type="ack", seq=0)
    )


def test_an_ack_above_what_was_sent_is_an_error() -> None:
    """The plane cannot hold what it was not sent on this connection: an error, and no change."""
    events = history(3)
    playbook = streaming(window=1) >> Committed(events) << sent(events[0])
    assert playbook >> says(type="ack", seq=2) << a(Note) << error("ack_not_sent")
    assert playbook >> says(type="ack", seq=1) << Acknowledge(1) << read(1, 1)


@pytest.mark.parametrize("code", ["invalid", "retired"])
def test_a_refused_event_is_parked_and_the_stream_goes_on(code: str) -> None:
    """A poison event becomes a dead letter, frees its place in the window, and holds up nothing."""
    events = history(3)
    assert (
        streaming(window=2)
        >> Committed(events)
        << sent(events[0])
        << sent(events[1])
        >> says(type="nack", seq=1, code=code, message="no")
        << Park(1, code, "no")
        << read(2, 1)
        >> says(type="nack", seq=1, code=code, message="no")
        >> EventsRead(2, events[2:])
        << sent(events[2])
        >> says(type="ack", seq=3)
        << Acknowledge(3)
    )


def test_what_a_dead_letter_says_is_bounded() -> None:
    """The plane's words about an event it refused are kept in the journal: a megabyte of them is not."""
    events = history(1)
    assert (
        streaming()
        >> Committed(events)
        << sent(events[0])
        >> says(type="nack", seq=1, code="invalid", message="x" * 100_000)
        << Park(1, "invalid", "x" * 499 + "…")
    )


@pytest.mark.parametrize("code", ["invalid", "retired", "busy", "conflict"])
def test_a_nack_for_what_was_not_sent_is_an_error(code: str) -> None:
    """Nothing is parked, paused or fenced for an event that the plane cannot have seen."""
    event = history(1)[0]
    assert (
        streaming()
        >> Committed((event,))
        << sent(event)
        >> says(type="nack", seq=2, code=code)
        << a(Note)
        << error("nack_not_sent")
    )


def test_busy_pauses_and_sends_again_from_there() -> None:
    """`busy` parks nothing: after the pause, the event and what followed it are sent again, in order."""
    events = history(4)
    assert (
        streaming()
        >> Committed(events[:3])
        << sent(events[0])
        << sent(events[1])
        << sent(events[2])
        >> says(type="nack", seq=2, code="busy", retry_after_ms=250)
        << PauseStream(250)
        >> says(type="nack", seq=3, code="busy", retry_after_ms=250)
        >> Committed(events[3:])
        >> Resumed()
        << read(1, 7)
        >> EventsRead(1, events[1:])
        << sent(events[1])
        << sent(events[2])
        << sent(events[3])
        >> says(type="ack", seq=4)
        << Acknowledge(4)
    )


def test_a_page_that_was_asked_for_before_a_busy_is_dropped() -> None:
    """After the stream moved back, a page from ahead of it must not be taken for a jump."""
    events = history(4)
    playbook = streaming(window=3) >> Committed(events[:2]) << sent(events[0]) << sent(events[1])
    assert (
        playbook
        >> says(type="nack", seq=1, code="busy")
        << PauseStream(RETRY_AFTER_MS)
        >> Resumed()
        << read(0, 3)
    )
    assert playbook >> EventsRead(0, events[:2]) << sent(events[0]) << sent(events[1])
    assert (
        playbook
        >> Committed(events[2:])
        << sent(events[2])
        >> says(type="ack", seq=1)
        << Acknowledge(1)
        << read(3, 1)
    )
    assert playbook >> says(type="nack", seq=2, code="busy") << a(PauseStream) >> Resumed()
    assert playbook >> EventsRead(3, events[3:]) << read(1, 3)
    assert playbook >> EventsRead(1, events[1:]) << sent(events[1]) << sent(events[2]) << sent(events[3])


def test_an_ack_beyond_a_busy_event_wins() -> None:
    """A plane that took the event after all is not sent it again."""
    events = history(2)
    assert (
        streaming()
        >> Committed(events)
        << sent(events[0])
        << sent(events[1])
        >> says(type="nack", seq=1, code="busy")
        << PauseStream(RETRY_AFTER_MS)
        >> says(type="ack", seq=2)
        << Acknowledge(2)
        >> Resumed()
    )


def test_a_pause_is_bounded() -> None:
    """However long the plane asks for, it is asked again after an hour."""
    event = history(1)[0]
    assert (
        streaming()
        >> Committed((event,))
        << sent(event)
        >> says(type="nack", seq=1, code="busy", retry_after_ms=2**50)
        << PauseStream(RETRY_AFTER_MS_MAX)
    )


# ------------------------------------------------------------ what is left out


def test_pruned_events_are_bridged_by_a_gap() -> None:
    """Before a jump stands a gap, with the chain as of its end, so that the plane sees no hole."""
    events = history(5)
    assert (
        Playbook(Opened(hello(last_seq=5, acked_seq=4)), welcome())
        >> EventsRead(0, events[3:])
        << ReadChain(3)
        >> ChainRead(3, events[2].chain)
        << frame(**{"type": "gap", "from": 1, "to": 3, "chain": events[2].chain})
        << sent(events[3])
        << sent(events[4])
    )


def test_erased_and_parked_events_are_skipped_with_a_gap() -> None:
    """Neighbours that are left out for whatever reason share one gap, and its chain is at hand."""
    events = history(5)
    page = (events[0], erased(events[1]), events[2], events[3], events[4])
    assert (
        Playbook(Opened(hello(last_seq=5)), welcome())
        >> EventsRead(0, page, parked=frozenset({3}))
        << sent(events[0])
        << frame(**{"type": "gap", "from": 2, "to": 3, "chain": events[2].chain})
        << sent(events[3])
        << sent(events[4])
    )


def test_a_gap_waits_for_the_event_behind_it() -> None:
    """Only a jump needs a gap: what is skipped at the end of the stream is said before the next event."""
    events = history(3)
    assert (
        Playbook(Opened(hello(last_seq=2)), welcome())
        >> EventsRead(0, events[:2], parked=frozenset({2}))
        << sent(events[0])
        >> Committed(events[2:])
        << frame(**{"type": "gap", "from": 2, "to": 2, "chain": events[1].chain})
        << sent(events[2])
        >> says(type="ack", seq=3)
        << Acknowledge(3)
    )


def test_a_journal_pruned_to_its_end_still_streams_what_comes() -> None:
    """Where nothing is left to read, the next commit is sent behind one gap over all of it."""
    events = history(4)
    assert (
        Playbook(Opened(hello(last_seq=3, acked_seq=3)), welcome())
        >> EventsRead(0, ())
        >> Committed(events[3:])
        << read(3, 8)
        >> EventsRead(3, events[3:])
        << ReadChain(3)
        >> ChainRead(3, events[2].chain)
        << frame(**{"type": "gap", "from": 1, "to": 3})
        << sent(events[3])
    )


def test_a_lost_chain_closes_the_link() -> None:
    """Without the chain no gap can be told truly, and nothing is made up."""
    playbook = Playbook(Opened(hello(last_seq=5)), welcome()) >> EventsRead(0, history(5)[3:]) << ReadChain(3)
    assert playbook >> ChainRead(3, None) << a(CloseLink)


def test_an_event_that_the_plane_cannot_take_is_parked() -> None:
    """Over the announced limit an event is parked as `too_large`: cutting it again would change its bytes."""
    first = an_event(1, origin(JOURNAL), size=5_000)
    second = an_event(2, first.chain)
    playbook = streaming(limit=2_000) >> Committed((first,))
    order = playbook.pending[0]
    assert isinstance(order, Park)
    assert (order.seq, order.code) == (1, "too_large")
    assert "max_frame_bytes" in order.message
    assert playbook << order
    assert playbook >> Committed((second,)) << frame(type="gap", to=1) << sent(second)


# ------------------------------------------------------------ commands


def test_a_new_command_is_answered_by_the_stream_alone() -> None:
    """What the engine accepted freshly is not answered beside the stream."""
    assert streaming() >> DELIVERED << Deliver(COMMAND) >> Answered(Silent())


def test_a_reply_goes_beside_the_stream() -> None:
    """A plain refusal is a frame of its own."""
    text = render(Refused(command_id=CommandId("cmd-1"), code="overloaded"))
    assert streaming() >> DELIVERED << Deliver(COMMAND) >> Answered(Reply(text)) << Send(text)


def test_a_known_command_is_repeated_as_far_as_the_stream_has_come() -> None:
    """Stored events go out byte-identical where they were sent already; the rest comes in its turn."""
    events = history(3)
    assert (
        streaming(window=2)
        >> Committed(events)
        << sent(events[0])
        << sent(events[1])
        >> Answered(Repeat((events[0], events[2])))
        << sent(events[0])
        >> says(type="ack", seq=2)
        << Acknowledge(2)
        << read(2, 2)
        >> EventsRead(2, events[2:])
        << sent(events[2])
        >> Answered(Repeat((events[0], events[2])))
        << sent(events[0])
        << sent(events[2])
    )


def test_a_parked_receipt_at_the_end_of_the_stream_is_repeated() -> None:
    """Nothing will come behind it, so it is not in its turn that the plane gets it."""
    events = history(3)
    assert (
        Playbook(Opened(hello(last_seq=2)), welcome())
        >> EventsRead(0, events[:2], parked=frozenset({2}))
        << sent(events[0])
        >> Answered(Repeat(events[:2]))
        << sent(events[0])
        << sent(events[1])
        >> says(type="nack", seq=2, code="invalid", message="still")
        >> says(type="ack", seq=2)
        << Acknowledge(2)
        >> Committed(events[2:])
        << sent(events[2])
    )


def test_a_parked_event_behind_others_is_repeated_behind_a_gap() -> None:
    """A plane that takes events in order can place it, and needs no gap before the next one."""
    events = history(5)
    assert (
        Playbook(Opened(hello(last_seq=4)), welcome())
        >> EventsRead(0, events[:4], parked=frozenset({2, 3, 4}))
        << sent(events[0])
        >> Answered(Repeat((events[0], events[2])))
        << sent(events[0])
        << frame(**{"type": "gap", "from": 2, "to": 4, "chain": events[3].chain})
        << sent(events[2])
        >> Committed(events[4:])
        << sent(events[4])
        >> says(type="ack", seq=5)
        << Acknowledge(5)
    )


def test_during_a_pause_nothing_behind_it_is_repeated() -> None:
    """The plane has not got what it was too busy for: what follows could not be placed."""
    events = history(3)
    assert (
        Playbook(Opened(hello(last_seq=2)), welcome())
        >> EventsRead(0, events[:2], parked=frozenset({2}))
        << sent(events[0])
        >> says(type="nack", seq=1, code="busy")
        << a(PauseStream)
        >> Answered(Repeat(events[:2]))
        << sent(events[0])
    )


def test_repeats_take_no_room_in_the_window() -> None:
    """What is sent again on request is in flight once, and does not hold up the stream."""
    events = history(2)
    assert (
        streaming(window=2)
        >> Committed(events[:1])
        << sent(events[0])
        >> Answered(Repeat(events[:1]))
        << sent(events[0])
        >> Committed(events[1:])
        << sent(events[1])
    )


def test_a_conflict_about_a_repeated_event_fences() -> None:
    """Other bytes under a seq that was acknowledged long ago are a conflict all the same."""
    events = history(2)
    playbook = streaming(events) >> Answered(Repeat(events[:1])) << sent(events[0])
    assert playbook >> says(type="nack", seq=1, code="conflict") << fence(FenceReason.CONFLICT)


# ------------------------------------------------------------ fences


def test_under_a_fence_nothing_of_the_stream_is_sent() -> None:
    """After a conflict, commits, pages, acks and repeats move nothing; commands get `fenced`."""
    events = history(2)
    playbook = streaming() >> Committed(events[:1]) << sent(events[0]) >> DELIVERED << Deliver(COMMAND)
    assert playbook >> says(type="nack", seq=1, code="conflict") << fence(FenceReason.CONFLICT)
    assert (
        playbook
        >> Committed(events[1:])
        >> says(type="ack", seq=1)
        >> EventsRead(0, events)
        >> Answered(Repeat(events))
        >> Resumed()
        >> says(type="nack", seq=1, code="conflict")
        >> DELIVERED
        << frame(type="refused", code="fenced", command_id="cmd-1")
    )


def test_a_daemon_that_was_fenced_before_confirms_nothing() -> None:
    """With `state:"fenced"` in hello, a welcome starts no stream, whatever it says; commands get `fenced`."""
    assert (
        Playbook(Opened(hello(last_seq=2, state="fenced"), "forked"))
        >> welcome(9, OTHER)
        >> DELIVERED
        << frame(type="refused", code="fenced")
    )


def test_the_close_code_of_a_takeover_fences() -> None:
    """4001 says that another life of this driver has the plane's ear."""
    playbook = streaming() >> Closed(4001, "superseded")
    assert playbook << fence(FenceReason.SUPERSEDED)
    assert playbook.session.phase is Phase.CLOSED


def test_a_takeover_does_not_replace_another_fence() -> None:
    """A rolled-back journal stays rolled back, and the takeover is remembered beside it."""
    playbook = Playbook(Opened(hello(last_seq=1)), welcome(2, OTHER))
    assert playbook >> Closed(4001, "superseded") << fence(FenceReason.SUPERSEDED)
    fenced = Playbook(Opened(hello(last_seq=1, state="fenced"), "superseded"))
    assert fenced >> Closed(4001, "superseded")


def restored() -> Playbook:
    """A session of a daemon whose journal was restored from a backup, of two events."""
    return Playbook(Opened(hello(last_seq=2, state="fenced"), "restored_backup"))


def test_a_restored_journal_that_the_plane_knows_may_act() -> None:
    """Its history is held against the plane's; then the fence is to be lifted, and nothing is sent before."""
    events = history(3)
    assert (
        restored()
        >> welcome(2, events[1].chain)
        << ReadChain(2)
        >> DELIVERED
        >> ChainRead(2, events[1].chain)
        << LiftFence()
        << frame(type="refused", code="fenced", command_id="cmd-1")
        >> Committed(events[2:])
    )
    assert restored() >> welcome() << LiftFence()


def test_a_restored_journal_that_is_too_old_is_fenced_for_that() -> None:
    """The plane has seen more, or something else: an operator must accept the rollback."""
    assert restored() >> welcome(3, OTHER) << fence(FenceReason.ROLLED_BACK)
    forked = restored() >> welcome(2, OTHER) << ReadChain(2) >> ChainRead(2, history(2)[1].chain)
    assert forked << fence(FenceReason.FORKED)


@pytest.mark.parametrize("code", [1000, 1006, 1009, 1012, 4002, 4003])
def test_other_closes_leave_nothing_behind(code: int) -> None:
    """No other close code fences, and a closed session answers nothing."""
    assert streaming() >> Closed(code, "") >> DELIVERED >> Committed(history(1)) >> Answered(Reply("{}"))


def test_statistics_say_where_the_session_stands() -> None:
    """The frozen view names phase, watermark, position and what is in flight."""
    events = history(3)
    playbook = streaming(events[:1]) >> Committed(events[1:]) << sent(events[1]) << sent(events[2])
    seen = playbook.session.statistics()
    assert (seen.phase, seen.session_id, seen.acked_seq, seen.covered_seq, seen.in_flight, seen.paused) == (
        Phase.STREAMING,
        "s-1",
        1,
        3,
        2,
        False,
    )
