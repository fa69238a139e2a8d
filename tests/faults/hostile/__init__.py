"""Lane `hostile peers`: whoever is connected to a daemon says what nobody should say.

* `words`: frames of a plane, bent; `judge`: what may be made of them, by another reading of the
  documentation;
* `parsers`: words to the parser of frames, and bent lines to that of MCP, in this process;
* `liars`: planes that lie, before the session, in this process;
* `visits`: words, bytes (`wire`) and handshakes to the real link and engine, over sockets, through a relay
  that forges (`forger`);
* `rivals`: two planes at once, before the same;
* `callers`: lines on the local sockets;
* `relays`: lines on the gateway's;
* `daemons`: all of that to real daemons, and hostile servers under them.

Most inputs come in by the first two ways, which cost a fraction of a millisecond; the report says how many
by which. Each has a number, which gives it again with the seed.
"""

from tests.faults.hostile.lane import NAME, run

__all__ = ["NAME", "run"]
