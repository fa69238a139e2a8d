"""`effectd demo`: the story of one command, three times, on real processes and a real MCP server.

Part of `driver`; only `driver.cli` imports it. It is told from outside: the daemon and the plane are
processes that it starts, and everything it says of them it has from their own commands, sockets and exit
codes. What happened is counted in the repository itself. `programme` is the list of acts; an act is one
module.
"""
