"""What every client's model is told of the gateway when a session begins.

Part of `driver.gateway`; imports the standard library alone, for the relay says it too.
"""

from typing import Final

INSTRUCTIONS: Final = (
    "Tools come through effectd, which records each call before it is made, and its outcome before you get "
    "it. A tool result that is an error begins with a state. 'unknown': the call may have happened; do not "
    "repeat it. 'refused', 'denied', 'not_executed': nothing was executed. 'still_running': it goes on; do "
    "not repeat it. effectd__operations and effectd__operation show what became of calls, effectd__probe "
    "looks in the provider. Follow what such a result says, and go on with work that does not depend on the "
    "call."
)
