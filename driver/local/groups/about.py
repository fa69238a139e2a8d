"""`GET /v1/openapi.json`: what is served, for programs.

Part of `driver.local.groups`.
"""

from collections.abc import Iterable

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from driver.local.answers import encoded, text_answer
from driver.local.endpoints import Endpoint, read
from driver.local.openapi import document
from driver.local.published import OpenApi
from driver.local.queries import NoQuery
from driver.local.service import Service


def endpoint_about(others: Iterable[Endpoint]) -> Endpoint:
    """Return the endpoint that describes the `others`, and itself; it does so when it is asked."""
    made: list[bytes] = []

    async def about(_service: Service, _request: Request, _: NoQuery) -> Response:
        """This document: every path, what it takes and what it answers."""
        if not made:
            made.append(encoded(await to_thread.run_sync(document, served)))
        return text_answer(made[0])

    own = read("/v1/openapi.json", about, query=NoQuery, answer=OpenApi)
    served = (*others, own)
    return own
