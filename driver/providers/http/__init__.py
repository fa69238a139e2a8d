"""HTTP APIs as a provider: each tool is a request that its declaration describes.

`settings` is all that a configuration needs; `provider` imports the HTTP library: import it only where a
provider of this kind is configured.

    provider   the `Provider`: requests that are ready to go, late answers
    exchange   one request, from its connection to its answer, and what it reports on the way
    requests   from a call to the request, pure          targets   its path and its query
    answers    from a response to the report, bounded    settings  what is configured
    errors     what is wrong before anything is sent
"""
