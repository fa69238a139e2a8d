"""The adapters that come with effectd are what the published certificates are about."""

import pytest

from driver.conformance.battery import built_in, examine
from driver.conformance.certificate import Certificate
from tests.certificates import command, published
from tests.frameworks import NAMES, interpreter

pytestmark = [pytest.mark.lane, pytest.mark.anyio]

SURE = ("honest", "kill-after-effect", "restart-with-redelivery", "conflict-on-changed-arguments")
"""Cases whose end hangs on no deadline that a busy machine could miss."""


def told(certificate: Certificate) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return what came of each case that can be compared."""
    return {one.case: (one.verdict, one.harms) for one in certificate.cases}


async def test_effectd_passes_every_case() -> None:
    """It conforms, and exercises all of them: its probe is asked, its attempts have keys."""
    said = await examine("effectd", built_in("effectd"))
    assert {one.verdict for one in said.cases} == {"passed"}, said.as_json()


@pytest.mark.parametrize("name", ["in-memory", *NAMES])
async def test_an_adapter_does_what_its_certificate_says(name: str) -> None:
    """The published verdicts can be measured again, with the versions that are pinned."""
    if name in NAMES:
        interpreter(name)
    certificate = published()[name]
    said = await examine(name, command(name), cases=SURE)
    assert said.version == certificate.version
    assert told(said) == {case: end for case, end in told(certificate).items() if case in SURE}
