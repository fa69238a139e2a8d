"""Every bound of the gateway, named once. At a bound a call is refused, or told so.

Part of `driver.gateway`; imports the standard library alone.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """Bounds of the gateway in the daemon. Durations are seconds, sizes bytes."""

    connections_max: int = 256
    """Relays at once: one for each agent."""
    greeting_s: float = 10.0
    """From a connection to its greeting."""
    handover_s: float = 3.0
    """How long a call waits for its run, where another relay has it that may be about to end."""
    arguments_bytes_max: int = 1_048_576
    """The arguments of one call, as JSON: what a frame of the control protocol may hold too."""
    calls_max: int = 1_024
    """Calls that wait for their answers at once."""
    reads_max: int = 128
    """Of one relay: requests without an answer that are no calls. It is not read any further meanwhile."""
    unread_bytes_max: int = 8_388_608
    """Of one relay: answers that it leaves unread, before it is not read any further either."""
    patience_s: float = 30.0
    """How long an answer is waited for after its operation should have ended."""
    progress_s: float = 5.0
    """Between two words about a call that waits."""
    list_s: float = 15.0
    """For the tool lists of all providers together; who is slower is listed when it has come."""
    poll_s: float = 60.0
    """Between two looks whether a provider serves other tools now, where it does not say so itself."""
    stall_s: float = 120.0
    """How long a client may leave what was written for it unread before it is cut off."""
    result_shown_bytes_max: int = 16_384
    """Of a twin's result in a refusal."""
    drain_s: float = 2.0
    """How long answers in progress may take once the daemon stops."""
    sessions_max: int = 256
    """Sessions over HTTP at once."""
