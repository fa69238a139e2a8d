"""`GET /metrics`: what a Prometheus server scrapes.

Part of `driver.local.groups`.
"""

from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from driver.local.queries import NoQuery, parse_query
from driver.local.service import Service

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def routes(service: Service) -> list[Route]:
    """Return the routes of this group."""
    return [Route("/metrics", partial(_metrics, service), methods=["GET"])]


async def _metrics(service: Service, request: Request) -> Response:
    parse_query(NoQuery, request)
    return Response(await service.metrics(), headers={"content-type": CONTENT_TYPE})
