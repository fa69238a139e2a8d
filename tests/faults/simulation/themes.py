"""What worlds are about."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """What some worlds are about, so that what is rare by chance is reached in each run."""

    tools: tuple[str, ...] = ()
    deeds: tuple[str, ...] = ()
    place: str | None = None
    """The boundary at whose second passing the first life ends."""
    snapshot: bool = False
    resends: bool = False
    """Whether what was not executed is always sent again, and tried again."""
    clone: bool = False
    """Whether there are two daemons that the plane cannot tell apart; so for tools whose intents it holds."""


THEMES: Final = (
    *[Theme()] * 12,
    Theme(tools=("asked",), deeds=("ok",), place="dispatch.prepared"),
    Theme(tools=("proving",), deeds=("error, taken back", "late", "ok")),
    Theme(deeds=("slow", "late", "silent"), snapshot=True),
)
TWO_DAEMONS: Final = Theme(tools=("held",), clone=True)
