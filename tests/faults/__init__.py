"""The fault battery: lanes that try to break every promise (I1 to I12), each with a count, a seed, and a look whether its faults fired.

A lane is a module, or a package, of this folder that exports two names:

    NAME: Final = "crash states"
    def run(seed: int, seconds: float, target: int) -> Report: ...

and stands in `tests.faults.__main__.LANES` with what it takes: a box of seconds and a count of points, one each for
`make faults` and for `make faults-full`; how many cores it keeps busy; which programs and which means of the
kernel it needs. `run` ends at its count or with its time, whichever is first, and gives its `Report`
(`tests.faults.lane`):

* `points`: how many were tried, as a number, and `tried`: what a point is, in words;
* `fired`: the faults that were really there, counted where they happen and not where they are asked for;
* `reached`: the states that were seen; `wanted`: those of `fired` and `reached` that must have been, among them
  `caught: …` for each negative control (a mechanism taken away, which the lane must notice);
* `figures`: what must be 0 (duplicate effects, lost receipts, …), where the lane measures it;
* `broken`: each broken promise, with what replays it alone, as a seed and an index or a whole command;
* `lacking`: parts that this machine cannot run. They fail the lane where CI is set.

The battery (`tests.faults.battery`) gives each lane a process of its own, with a hard limit of time: a lane that
hangs has failed, is named, and is killed with all that it started. Lanes of one core run side by side, those of
two alone. What came out is printed whole, written by `--json`, and shown in docs/reliability.md by
`python -m tests.faults.page`.

Everything is drawn from the seed; a lane that cannot be told again from it (real processes, real time) says so in
its docstring. The machinery of lanes has tests of its own, here, in `make test`.
"""  # noqa: E501
