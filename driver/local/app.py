"""The local API as one starlette application, whatever socket a request comes over.

Part of `driver.local`. A new group of paths is a module in `driver.local.groups` and a line here.
"""

from typing import Final

from starlette.applications import Starlette

from driver.local import problems
from driver.local.groups import (
    about,
    copies,
    dead_letters,
    decisions,
    errands,
    events,
    fence,
    metrics,
    operations,
    runs,
    status,
    verdicts,
    verify,
    walls,
)
from driver.local.service import Service

GROUPS: Final = (
    status,
    operations,
    decisions,
    verdicts,
    errands,
    runs,
    walls,
    dead_letters,
    events,
    verify,
    copies,
    metrics,
    fence,
)


_DESCRIBED: Final = tuple(endpoint for group in GROUPS for endpoint in group.ENDPOINTS)
ENDPOINTS: Final = (*_DESCRIBED, about.endpoint_about(_DESCRIBED))
"""Everything that is served."""


def build(service: Service) -> Starlette:
    """Return the application. Nothing of it runs before it is served."""
    app = Starlette(
        routes=[endpoint.route(service) for endpoint in ENDPOINTS],
        exception_handlers=problems.handlers(),
    )
    app.router.redirect_slashes = False
    return app
