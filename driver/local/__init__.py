"""The local HTTP API on the Unix sockets `inspect.sock` and `operator.sock`.

May import `driver.core`, `driver.config` (its models, read-only) and `store`. The handlers stand in `groups`,
one module for each group of paths; what they need of the daemon is one protocol, in `sources`.

    listening      server, sockets, connection (slow clients are bounded), peers (who is there), settings
    a request      app, gate (what it must pass), rates, endpoints, queries, bodies
    an answer      answers, streams, shapes (records as JSON), counting (events as the wire counts them)
    a refusal      errors (the tree), problems (as RFC 9457)
    for handlers   service, sources, follower (events as they come), copying, exports
    published      published (the models of answers), openapi
"""
