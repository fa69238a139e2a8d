"""Why the gateway itself does not take a call: what is wrong with it, or with who makes it.

Part of `driver.gateway`; imports its siblings.
"""

import json

from driver.gateway.asking import Asked
from driver.gateway.limits import GatewayLimits
from driver.gateway.outcomes import NotTaken
from driver.gateway.runs import Speaker


def crowded(waiting: int) -> NotTaken:
    """Say that too many calls wait."""
    message = f"{waiting} calls wait for their answers already: wait for some of them."
    return NotTaken(code="overloaded", message=message)


def misshapen(asked: Asked, limits: GatewayLimits) -> NotTaken | None:
    """Return what is wrong with the arguments of a call; None where nothing is."""
    try:
        text = json.dumps(asked.arguments, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except (ValueError, RecursionError):
        message = "The arguments hold a number or a text that JSON does not have."
        return NotTaken(code="invalid_arguments", message=message)
    if size > limits.arguments_bytes_max:
        most = limits.arguments_bytes_max
        message = f"The arguments have {size:,} bytes as JSON, and {most:,} are allowed: send less at once."
        return NotTaken(code="oversize", message=message)
    return None


def conflict(asked: Asked) -> NotTaken:
    """Say that another call waits under this id."""
    message = (
        f"Another call is known as {asked.command_id}, and goes on as it was: send this one under an id of "
        "its own."
    )
    return NotTaken(code="conflict", message=message)


def run_in_use(speaker: Speaker) -> NotTaken:
    """Say that the run is another one's."""
    option = "--run" if speaker.relayed else "Effectd-Run"
    message = (
        f"Another gateway serves run {speaker.run_id} now, and two agents with one run would take each "
        f"other's calls for their own. Name none with {option}, or another one, or end the other."
    )
    return NotTaken(code="run_in_use", message=message)
