"""Careful contracts, from what servers say of their tools and what the tools are called.

Part of `driver.importing`, pure: imports nothing of ours but the store's JSON.

A server's annotations prove nothing, and a name proves less. So both may only make a contract more careful: a
tool that says that it destroys, or is called so, is proposed as `once-per-run`; that a tool reads is proposed
to the person alone, as a comment. Only where a person said to trust annotations do they decide.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from store.records import JsonObject, JsonValue

TOOL_CHARS_MAX: Final = 256
"""Tools with longer names, or such as do not print, get no proposal."""
PROPOSALS_MAX: Final = 256
"""Contracts proposed for one provider: a person is to read them."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_DESTROYS: Final = frozenset(
    {
        "book", "buy", "cancel", "charge", "delete", "destroy", "drop", "email", "erase", "invite", "kill",
        "merge", "notify", "order", "pay", "payout", "post", "publish", "purchase", "purge", "refund",
        "remove", "reply", "revoke", "send", "sign", "sms", "submit", "terminate", "transfer", "trash",
        "truncate", "unpublish", "wipe", "withdraw",
    }
)  # fmt: skip
"""Verbs after which nothing is as before, or somebody else has heard of it."""
_READS: Final = frozenset(
    {
        "check", "count", "describe", "diff", "explain", "export", "fetch", "find", "get", "has", "inspect",
        "is", "list", "lookup", "peek", "preview", "query", "read", "resolve", "search", "show", "stat",
        "status", "summarize", "view", "whoami",
    }
)  # fmt: skip
"""Verbs that usually change nothing, where a name begins with them."""

Kind = Literal["once-per-run", "read", "maybe-read"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What is proposed for one tool, and which rule says so."""

    tool: str
    kind: Kind
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals:
    """What is proposed for the tools of one provider, by their names.

    `others` are plain writes, `unnamed` the number of tools that could not be looked at.
    """

    contracts: tuple[Proposal, ...]
    others: tuple[str, ...]
    unnamed: int

    def of(self, *kinds: Kind) -> tuple[Proposal, ...]:
        """Return the proposals of these kinds."""
        return tuple(proposal for proposal in self.contracts if proposal.kind in kinds)


def propose(served: Mapping[str, JsonObject], *, trust_annotations: bool) -> Proposals:
    """Return what is proposed for the tools `served`, each with its definition as its server lists it."""
    named = sorted(
        name for name in served if len(name) <= TOOL_CHARS_MAX and name.strip() and name.isprintable()
    )
    contracts: list[Proposal] = []
    others: list[str] = []
    for name in named:
        proposal = _proposal(name, _hints(served[name]), trust_annotations=trust_annotations)
        if proposal is None or len(contracts) == PROPOSALS_MAX:
            others.append(name)
        else:
            contracts.append(proposal)
    return Proposals(contracts=tuple(contracts), others=tuple(others), unnamed=len(served) - len(named))


def _proposal(name: str, hints: JsonObject, *, trust_annotations: bool) -> Proposal | None:
    reads = hints.get("readOnlyHint") is True
    if trust_annotations and reads:
        return Proposal(tool=name, kind="read", why="readOnlyHint is true")
    if hints.get("destructiveHint") is True and not reads:
        return Proposal(tool=name, kind="once-per-run", why="destructiveHint is true")
    words = [word.lower() for word in _WORD.findall(name)]
    verb = None if words and words[0] in _READS else next((word for word in words if word in _DESTROYS), None)
    believed = trust_annotations and hints.get("destructiveHint") is False
    if verb is not None and not believed:
        return Proposal(tool=name, kind="once-per-run", why=f'its name says "{verb}"{_beside(hints)}')
    if reads:
        return Proposal(tool=name, kind="maybe-read", why="readOnlyHint is true: no proof")
    if words and words[0] in _READS and hints.get("readOnlyHint") is not False:
        return Proposal(tool=name, kind="maybe-read", why=f'its name begins with "{words[0]}": no proof')
    return None


def _beside(hints: JsonObject) -> str:
    if hints.get("readOnlyHint") is True:
        return ", while readOnlyHint is true"
    return ", while destructiveHint is false" if hints.get("destructiveHint") is False else ""


def _hints(definition: JsonObject) -> JsonObject:
    annotations: JsonValue = definition.get("annotations")
    return annotations if isinstance(annotations, dict) else {}
