"""Lines out of a byte stream, with a cap on the longest.

Part of `driver.providers.mcp`, sans I/O. Never holds more than the cap and one chunk.
"""


class LineTooLong(ValueError):
    """A line grew past `bytes_max` without an end. What follows cannot be trusted to be in step."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        super().__init__(f"a message of more than {bytes_max} bytes, the provider's answer_max_bytes")


class LineSplitter:
    """Collects chunks and hands out whole lines, without their ends."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes. Raises `LineTooLong`; the splitter is spent then."""
        *ends, rest = chunk.split(b"\n")
        lines = [self._complete(end) for end in ends]
        self._hold(rest)
        return lines

    def _complete(self, end: bytes) -> bytes:
        self._hold(end)
        line = b"".join(self._parts)
        self._parts.clear()
        self._held = 0
        return line

    def _hold(self, part: bytes) -> None:
        if not part:
            return
        self._held += len(part)
        if self._held > self._bytes_max:
            self._parts.clear()
            raise LineTooLong(self._bytes_max)
        self._parts.append(part)
