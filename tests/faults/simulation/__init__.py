"""The simulation lane: the real daemon code in virtual time, killed, cut off and lied to, by a seed.

`world` is one world, `lane` plays thousands. What is real: journal, engine, link and its conversation,
supervisor. What is simulated: time, threads (`loop`, `disk`), the network and the plane, the tools, and
whoever starts a second daemon or copies a sandbox that lives (`rivals`).
"""

from tests.faults.simulation.lane import NAME, run

__all__ = ["NAME", "run"]
