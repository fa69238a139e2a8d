"""MCP servers as providers, over stdio and Streamable HTTP.

`settings` is all that a configuration needs; `provider` imports the SDK, which costs most of a second and
65 MB: import it only where a provider of this kind is configured.

    provider   the `Provider`: which connection serves, starting, backoff, replacing what went deaf
    life       one connection from handshake to close: calls, pings, late answers
    listeners  calls that nobody waits for any more, and whose answers still count
    following  what a server says unasked: progress, lists that changed
    tasks      a handle in place of a result: asked after until it has ended
    listing    the tools that a server lists
    exchange   one request and its reply, and what every wire can do
    stdio      the wire to a child process          http     the wire to a URL
    child      the process itself                   address  where that is, and what is shown there
    lines      lines with a cap
    pace       whose turn it is when one talks on and on
    sdk        the SDK's side of a wire             jsonrpc  what a message is, and what an answer means
    calls      a tool call as it is sent            tools    the served tool list
    schema     JSON Schema that cannot hang us      settings what is configured

What is raised between these modules; a call's own fate is a `Report`, never an exception:

    ConnectFailed       life      no connection: nothing of any call left
    SpawnFailed         child     no process: nothing of any call left
    AddressUnusable     address   no address, or nothing to show there: nothing of any call left
    NoList              listing   no answer to `tools/list`: the old list stays, or there is no connection
    ValueError
     ├── LineTooLong    lines     a peer's line is above the cap: the connection ends
     └── HeaderNeedsHttp settings the key cannot travel so: a bug of whoever mapped the configuration
"""
