"""`GET /metrics`: what a Prometheus server scrapes.

Part of `driver.local.groups`.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from driver.local.endpoints import read
from driver.local.queries import NoQuery
from driver.local.service import Service

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"


async def _metrics(service: Service, _request: Request, _: NoQuery) -> Response:
    """The metrics of this process life, as OpenMetrics text."""
    return Response(await service.metrics(), headers={"content-type": CONTENT_TYPE})


ENDPOINTS: Final = (read("/metrics", _metrics, query=NoQuery, answer=CONTENT_TYPE),)
