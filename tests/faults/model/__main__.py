"""Play one slice alone, and reduce what breaks: `python -m tests.faults.model MACHINE SEED SLICE`."""

import sys

from tests.faults.model import play
from tests.faults.model.bench import prompt_connections

with prompt_connections():
    play(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), reduced=True)
