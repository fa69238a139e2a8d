"""Play worlds alone: `python -m tests.faults.simulation WORLD …` prints the trace of each, and what broke."""

import sys

from tests.faults.simulation.batch import main

main(sys.argv[1:])
