"""What a daemon closes of itself before it opens anything."""

import json
import subprocess
import sys

SCRIPT = """
import ctypes, json, os, resource
from driver import daemon
PR_GET_DUMPABLE = 3
def look():
    umask = os.umask(0)
    os.umask(umask)
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    return [ctypes.CDLL(None).prctl(PR_GET_DUMPABLE), limits, umask]
os.umask(0o022)
before = look()
daemon._harden()
print(json.dumps([before, look()]))
"""


def test_its_memory_its_files_and_its_last_words_are_its_own() -> None:
    """Nobody may attach to it or read its memory, a crash leaves no core, and new files are private."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    before, after = json.loads(done.stdout)
    assert before[0] == 1, "without it, others of the same user could"
    assert after == [0, [0, 0], 0o077]
