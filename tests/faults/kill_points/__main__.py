"""Fight one battle again: `python -m tests.faults.kill_points SCENE BLOW…`, as a report names it."""

import sys

from tests.faults.kill_points.worker import replay

if __name__ == "__main__":
    tally = replay(sys.argv[1], sys.argv[2:])
    sys.stdout.write(f"{tally.fired.total()} of {tally.tried} kills fired\n")
    sys.stdout.write("\n".join(tally.broken or ["all holds"]) + "\n")
    sys.exit(1 if tally.broken else 0)
