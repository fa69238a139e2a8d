"""The guard at every start: the three import packages of effectd come from one place.

Part of `driver.cli`; imports the standard library only. `store` is a common name: another distribution with a
package of that name, installed into the same environment, would otherwise run in place of ours.

    ForeignPackage    one of the packages is somebody else's
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKAGES: Final = ("driver", "store", "supervisor")


class ForeignPackage(Exception):
    """`package` is found in `place`, and not beside the others in `home`; both None where it is not found."""

    def __init__(self, package: str, place: Path | None, home: Path) -> None:
        self.package = package
        self.place = place
        self.home = home
        where = f"comes from {place}" if place else "is missing"
        super().__init__(
            f"the package {package!r} {where}, and effectd is installed in {home}: "
            "install effectd into a virtual environment of its own"
        )


def check_packages() -> None:
    """Return where all packages stand beside this one. Raises `ForeignPackage`."""
    home = Path(__file__).resolve().parents[2]
    for package in PACKAGES:
        place = _place(package)
        if place != home:
            raise ForeignPackage(package, place, home)


def _place(package: str) -> Path | None:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).resolve().parents[1]
