"""Lane `network`: connections that break at every byte, and networks that carry nothing, or one way only.

* `cuts`: the real link and the real engine against a plane that checks everything, through a relay of our own
  (`cutter`) that breaks the connection after an exact number of bytes; with TLS, of the ciphertext;
* `calls`: the same between the provider for HTTP and an API;
* `partitions`: real daemons in network namespaces (`countryside`).
"""

from tests.faults.network.lane import NAME, run

__all__ = ["NAME", "run"]
