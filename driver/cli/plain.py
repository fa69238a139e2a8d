r"""Text that somebody else wrote, made safe for a terminal.

Part of `driver.cli`, pure. A tool's name, an argument or an answer may hold ESC sequences that rewrite the
screen, or invisible characters that reorder it; each character that does not print itself is shown as its
escape: `\x1b`.
"""


def plain(text: str) -> str:
    r"""Return `text` on one line, with every unprintable character as `\xNN`, `\uNNNN` or `\n`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
