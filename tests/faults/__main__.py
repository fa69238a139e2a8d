"""Run lanes: `python -m tests.faults --lane NAME --seed N --seconds S`; all lanes, without a name.

Exit code 0 where each of them holds, else 1. A lane that the machine cannot run fails where CI is set, and is
left out with a word elsewhere. `--full` gives each lane its long box; `--json FILE` writes all reports there,
from which `python -m tests.faults.page` makes the figures of docs/reliability.md.
"""

import argparse
import json
import os
import platform
import resource
import sqlite3
import sys
import traceback
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Final

import anyio

from tests.faults import notifier
from tests.faults.battery import Battery, Ran
from tests.faults.fates import Fate, escaped, fates_of, told
from tests.faults.lane import Box, Lane, Run, is_strict, program

SEED: Final = 20261130
NORMAL_S, FULL_S = 460.0, 3_560.0
"""How long all lanes may take together: eight minutes and an hour, less what it takes to end."""
LANES: Final = (
    Lane(
        name="crash states",
        module="tests.faults.crash_states",
        what="every legal state of the disk after a power loss, from recordings of a journal and of a daemon",
        points="states of the disk",
        normal=Box(seconds=93, points=100_000),
        full=Box(seconds=650, points=2_000_000),
        cores=2,
        needs=(program("strace"),),
    ),
    Lane(
        name="errors",
        module="tests.faults.errors",
        what="EIO, ENOSPC, EMFILE, ENOLCK, once and for ever, at the n-th call of each kind; a full disk",
        points="errors injected",
        normal=Box(seconds=60, points=1_000),
        full=Box(seconds=330, points=6_000),
        cores=2,
        needs=(notifier.lacking,),
    ),
    Lane(
        name="kill points",
        module="tests.faults.kill_points",
        what="SIGKILL at every file operation and named point of all that it can do, and again in recovery",
        points="kills",
        normal=Box(seconds=40, points=3_000),
        full=Box(seconds=500, points=20_000),
        cores=2,
        needs=(notifier.lacking,),
    ),
    Lane(
        name="model",
        module="tests.faults.model",
        what="Hypothesis state machines: the journal, its evidence, what a supervisor records, the link",
        points="examples",
        normal=Box(seconds=115, points=3_000),
        full=Box(seconds=1_300, points=50_000),
    ),
    Lane(
        name="simulation",
        module="tests.faults.simulation",
        what="the daemon's own code in virtual time: crashes, partitions, slow disks, clones, planes, tools",
        points="worlds",
        normal=Box(seconds=114, points=5_000),
        full=Box(seconds=780, points=200_000),
        cores=2,
    ),
    Lane(
        name="soak",
        module="tests.faults.soak",
        what="daemons under load whose processes, connections and planes die: nothing may grow",
        points="calls",
        normal=Box(seconds=120, points=1_000_000),
        full=Box(seconds=2_700, points=10_000_000),
        cores=0,
    ),
    Lane(
        name="network",
        module="tests.faults.network",
        what="a connection cut at every byte, by RST and FIN, both ways, with TLS and without; partitions",
        points="cuts and partitions",
        normal=Box(seconds=130, points=9_000),
        full=Box(seconds=600, points=100_000),
    ),
    Lane(
        name="hostile peers",
        module="tests.faults.hostile",
        what="frames, handshakes, planes, servers and callers that nobody should believe",
        points="inputs",
        normal=Box(seconds=70, points=100_000),
        full=Box(seconds=900, points=5_000_000),
    ),
    Lane(
        name="mutants",
        module="tests.faults.mutants",
        what="bugs that no other lane has as a control: each must be noticed; then what would notice them",
        points="attacks on the product without a bug",
        normal=Box(seconds=50, points=300),
        full=Box(seconds=300, points=10_000),
    ),
)
BY_NAME: Final = {lane.name: lane for lane in LANES}


def main(arguments: list[str]) -> int:
    """Run what was asked for."""
    asked = _parser().parse_args(arguments)
    work = [(BY_NAME[name], _box(BY_NAME[name], asked)) for name in asked.lane or BY_NAME]
    if asked.here is not None:
        (((lane, box),)) = work
        return _here(lane, asked.seed, box, asked.here)
    began = monotonic()
    possible, left_out = _possible(work)
    is_whole = not (asked.lane or asked.seconds)
    seconds = (FULL_S if asked.full else NORMAL_S) if is_whole else None
    battery = Battery(seed=asked.seed, say=_say, seconds=seconds)
    anyio.run(battery.run, possible)
    took_s = monotonic() - began
    failing = [ran.lane.name for ran in battery.ended if not ran.report.holds] + (
        left_out if is_strict() else []
    )
    fates = None if asked.lane else fates_of(ran.report for ran in battery.ended)
    if fates is not None:
        failing += escaped(fates, excused=left_out)
        _print("\n".join(told(fates)))
    if len(work) > 1:
        verdict = f"FAILED: {', '.join(failing)}" if failing else "all hold"
        _print(f"{len(battery.ended)} of {len(work)} lanes run in {took_s:.0f} s: {verdict}")
    if asked.json is not None:
        asked.json.write_text(_figures(battery.ended, fates, asked.seed, took_s, full=asked.full))
    return 1 if failing else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--lane", choices=sorted(BY_NAME), action="append", help="all, without it")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--full", action="store_true", help="the long boxes: an hour for all lanes")
    parser.add_argument("--seconds", type=float, help="for each lane, instead of its box")
    parser.add_argument("--points", type=int, help="for each lane, instead of its count")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the reports there")
    parser.add_argument(
        "--here",
        type=Path,
        metavar="FILE",
        help="one lane, in this process and without a limit; its report goes to FILE",
    )
    return parser


def _box(lane: Lane, asked: argparse.Namespace) -> Box:
    box = lane.full if asked.full else lane.normal
    return Box(seconds=asked.seconds or box.seconds, points=asked.points or box.points)


def _possible(work: Iterable[tuple[Lane, Box]]) -> tuple[list[tuple[Lane, Box]], list[str]]:
    """Return what this machine can run, and the names of the others."""
    possible: list[tuple[Lane, Box]] = []
    left_out: list[str] = []
    for lane, box in work:
        if lacking := lane.lacking():
            _print(f"{lane.name}: not run, {'; '.join(lacking)}")
            left_out.append(lane.name)
        else:
            possible.append((lane, box))
    return possible, left_out


def _here(lane: Lane, seed: int, box: Box, to: Path) -> int:
    run: Run = import_module(lane.module).run
    try:
        report = run(seed, box.seconds, box.points)
    except Exception:  # noqa: BLE001 - whatever it was, the lane has failed, and its name is told with it
        traceback.print_exc()
        return 1
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    report.cpu_s = sum(each.ru_utime + each.ru_stime for each in used)
    to.write_text(json.dumps(report.to_json()))
    return 0 if report.holds else 1


def _say(ran: Ran) -> None:
    report, box = ran.report, ran.box
    for line in report.lines():
        _print(line)
    if ran.printed.strip():
        _print(ran.printed.rstrip())
    share = f"{report.points:,} of {box.points:,} {ran.lane.points}"
    took = f"{report.seconds:.0f} s with a box of {box.seconds:g} s, {report.cpu_s:.0f} s of CPU"
    _print(f"  {'holds' if report.holds else 'FAILS'}: {share}, {took}")


def _figures(ended: Iterable[Ran], fates: list[Fate] | None, seed: int, took_s: float, *, full: bool) -> str:
    order = [lane.name for lane in LANES]
    lanes = [
        {**ran.report.to_json(), "target": ran.box.points, "box_s": ran.box.seconds}
        for ran in sorted(ended, key=lambda ran: order.index(ran.lane.name))
    ]
    where = {
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "kernel": f"{platform.system()} {platform.release().split('-')[0]}, {platform.machine()}",
    }
    found: dict[str, object] = {
        "full": full,
        "seed": seed,
        "seconds": round(took_s),
        "where": where,
        "lanes": lanes,
    }
    if fates is not None:
        found["mutants"] = [fate.to_json() for fate in fates]
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
