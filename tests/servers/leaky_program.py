"""A program that repeats what it is told, wherever it can.

Run it as `python -I -S leaky_program.py MODE WORD...`, with more words on stdin. All of them stand on both
outputs then, and a person's address that nobody told it on stderr. It ends as MODE says: `answer` and `large`
well, `fail` with an exit code, `signal` by one, `cut` well but in the middle of a word, and `wait` never.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Final

EMAIL: Final = "canary-of-a-result@example.com"


def main() -> None:
    """Tell everything."""
    mode, *words = sys.argv[1:]
    quoted = f"called with {words!r} and {sys.stdin.read()}"
    sys.stdout.write((quoted + "\n") * (2_000 if mode == "large" else 1))
    sys.stdout.flush()
    sys.stderr.write(f"for {EMAIL}: {quoted}\n")
    sys.stderr.flush()
    if mode == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "wait":
        Path("waits").touch()
        signal.pause()
    sys.exit(3 if mode == "fail" else 0)


if __name__ == "__main__":
    main()
