"""Play worlds alone: `python -m tests.faults.simulation WORLD …` prints the trace of each, and what broke.

Exit code 1 where something did.
"""

import sys

from tests.faults.simulation.batch import main

sys.exit(main(sys.argv[1:]))
