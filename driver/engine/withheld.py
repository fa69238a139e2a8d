"""What is withheld of a call: by its contract of today, and by the one under which it was accepted.

Part of `driver.engine`; imports `driver.core` and `store`. A contract may begin or cease to withhold
something between two deliveries of a command, or between a call and its look-alike: then the same content
and the same arguments have two digests, and both count.
"""

from driver.core.admission import Candidate
from driver.core.commands import ToolCallData
from driver.core.contracts import Contract
from driver.core.frames import CommandFrame, InvalidCommand
from driver.core.identity import Digester, args_digest, content_digest, sha256
from driver.core.redaction import Redaction, redaction
from driver.core.reports import Redactor
from store.keys import DigestKey
from store.records import CommandRecord, Digest, JsonValue, OperationRecord, StoredData, Tombstone
from store.view import View


def tool_of(frame: CommandFrame | InvalidCommand) -> str:
    """Return the tool that a command names, be it valid or not; an empty text where it names none."""
    kind, _, data = content_of(frame)
    tool = data.get("tool") if kind == ToolCallData.KIND and isinstance(data, dict) else None
    return tool if isinstance(tool, str) else ""


def content_of(frame: CommandFrame | InvalidCommand) -> tuple[JsonValue, JsonValue, JsonValue]:
    """Return what the content digest of a command is about."""
    return frame.content if isinstance(frame, InvalidCommand) else (frame.kind, frame.run_id, frame.data)


class Fingerprints:
    """Makes the digests of commands: under the folder's key where the call's contract withholds something."""

    def __init__(self, key: DigestKey) -> None:
        self._key = key

    def digester(self, contract: Contract) -> Digester:
        """Return what makes the digests that are recorded of a call."""
        return sha256 if contract.redact is None else self._key.digest

    def recognise(
        self,
        asked: Candidate,
        frame: CommandFrame | InvalidCommand,
        contract: Contract,
        known: CommandRecord | Tombstone,
    ) -> Candidate:
        """Return the candidate with the digest that the journal has of it, where it has the same content."""
        if asked.content_digest == known.content_digest:
            return asked
        other = content_digest(*content_of(frame), self._other(contract))
        if other != known.content_digest:
            return asked
        return Candidate(content_digest=other, data=asked.data, delivered_to=asked.delivered_to)

    def alike(
        self, view: View, data: ToolCallData, contract: Contract, recorded: Digest
    ) -> tuple[Digest, ...]:
        """Return the digests that a call with the same arguments may have been recorded under."""
        if contract.redact is None and not view.has_keyed_digests:
            return (recorded,)
        return recorded, args_digest(data.tool, data.arguments, self._other(contract))

    def _other(self, contract: Contract) -> Digester:
        return self._key.digest if contract.redact is None else sha256


def withheld(contract: Contract, data: StoredData | None) -> Redaction | None:
    """Return what is withheld of a call; None where nothing is."""
    before = () if data is None else data.redact
    return redaction(before) if contract.redact is None else contract.redact.joined(before)


def redactor(view: View, record: OperationRecord, contract: Contract) -> Redactor | None:
    """Return what keeps an answer of this operation from telling what is withheld; None where nothing is."""
    data = view.command_data(record.command_id)
    found = withheld(contract, data)
    if found is None:
        return None
    return Redactor(redaction=found, arguments=None if data is None else data.arguments)
