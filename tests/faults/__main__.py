"""Run lanes: `python -m tests.faults --lane NAME --seed N --seconds S`; all lanes, without a name.

Exit code 0 where each of them holds, else 1. A lane that the machine cannot run fails where CI is set, and is
left out with a word elsewhere.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from types import MappingProxyType
from typing import Final

from tests.faults import crash_states, errors, notifier
from tests.faults.lane import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One lane, and what it takes."""

    run: Run
    seconds: float
    needs: tuple[str, ...] = ()
    """Programs."""
    possible: Callable[[], bool] = lambda: True
    """Whether the kernel lets it."""


LANES: Final[Mapping[str, Lane]] = MappingProxyType(
    {
        crash_states.NAME: Lane(run=crash_states.run, seconds=100, needs=("strace",)),
        errors.NAME: Lane(run=errors.run, seconds=70, possible=notifier.is_available),
    }
)
SEED: Final = 20261130


def main(arguments: list[str]) -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--lane", choices=sorted(LANES), action="append")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--seconds", type=float, help="for each lane")
    asked = parser.parse_args(arguments)
    held = [_run(name, asked.seed, asked.seconds) for name in asked.lane or LANES]
    return 0 if all(held) else 1


def _run(name: str, seed: int, seconds: float | None) -> bool:
    lane = LANES[name]
    if missing := [program for program in lane.needs if shutil.which(program) is None]:
        _print(f"{name}: not run, this machine has no {', '.join(missing)}")
        return not os.environ.get("CI")
    if not lane.possible():
        _print(f"{name}: not run, the kernel of this machine cannot report system calls (Linux 5.5, x86-64)")
        return not os.environ.get("CI")
    began = monotonic()
    report = lane.run(seed, seconds or lane.seconds)
    for line in report.lines():
        _print(line)
    _print(f"  {'holds' if report.holds else 'FAILS'}, after {monotonic() - began:.0f} s")
    return report.holds


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
