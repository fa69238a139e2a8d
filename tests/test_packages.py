"""The three import packages belong together."""

import subprocess
import tomllib
from fnmatch import fnmatch
from importlib import import_module
from importlib.metadata import entry_points, requires
from pathlib import Path

import anyio
import pytest
from blockbuster import BlockingError

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("driver", "store", "supervisor")


def _folder(package: str) -> Path:
    file = import_module(package).__file__
    assert file is not None
    return Path(file).resolve().parent


def test_the_three_packages_come_from_one_place() -> None:
    """No package of the same name, installed by somebody else, stands in for one of ours."""
    assert len({_folder(package).parent for package in PACKAGES}) == 1


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_is_typed_and_says_what_it_is(package: str) -> None:
    """Each package carries the marker of PEP 561 and a docstring."""
    assert (_folder(package) / "py.typed").is_file()
    assert import_module(package).__doc__


def test_the_command_is_named_effectd() -> None:
    """The distribution installs exactly one command."""
    ours = [point for point in entry_points(group="console_scripts") if point.value.startswith("driver.")]
    assert [(point.name, point.value) for point in ours] == [("effectd", "driver.cli.main:main")]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only a checkout says what belongs to it")
def test_the_source_distribution_holds_the_whole_checkout() -> None:
    """Who unpacks it can run the tests, which read the recipe of the container and what goes into it."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    patterns = [pattern.removeprefix("/") for pattern in build["sdist"]["include"]]
    names = {line.partition("/")[0] for line in listed.splitlines()} - {
        ".gitignore",
        "pyproject.toml",
    }  # always
    assert {name for name in names if not any(fnmatch(name, pattern) for pattern in patterns)} == set()


def test_run_time_dependencies_are_bounded_below() -> None:
    """Every dependency names the oldest version that it was tried with."""
    unbounded = [line for line in requires("effectd") or () if ">=" not in line]
    assert unbounded == []


@pytest.mark.anyio
async def test_a_blocked_event_loop_fails_a_test() -> None:
    """Negative control of `loop_must_not_block`: a sleep in code named as ours raises."""
    blocking = compile("import time\ntime.sleep(0.001)", str(_folder("driver") / "made_up.py"), "exec")
    await anyio.lowlevel.checkpoint()
    with pytest.raises(BlockingError):
        exec(blocking, {"__name__": "driver.made_up"})
