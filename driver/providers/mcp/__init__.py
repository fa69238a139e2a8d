"""MCP servers as providers, over stdio and Streamable HTTP.

`settings` is all that a configuration needs; `provider` imports the SDK, which costs most of a second and 65
MB: import it only where a provider of this kind is configured.

    provider   the `Provider`: which connection serves, starting, backoff, replacing what went deaf
    life       one connection from handshake to close: calls, tool list, pings, late answers
    stdio      the wire to a child process          http    the wire to a URL
    child      the process itself                   sse     server-sent events, bounded
    exchange   one request and its reply            jsonrpc what goes over a wire, and what an answer means
    tools      the served tool list                 schema  JSON Schema that cannot hang us
"""
