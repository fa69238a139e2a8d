"""Reference (d): DBOS Transact with SQLite, a workflow of one step that does nothing.

`installed`: as it comes. `durable`: each connection in WAL with `synchronous=FULL`, which is what effectd's
journal has. Run as `python -m tests.bench.references.dbos_transact MODE FOLDER`.

It is imported by name: only `make bench` installs it, and the code is checked without it.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.bench.references.peer import Measure, serve

DBOS: Any = import_module("dbos").DBOS
sqlalchemy: Any = import_module("sqlalchemy")


def measured() -> Measure:
    """Return what measures a workflow of one step."""
    step = DBOS.step()(_nothing)

    def one_step(n: int) -> int:
        return int(step(n))

    workflow = DBOS.workflow()(one_step)

    def measure(in_flight: int, seconds: float) -> float:
        began = time.perf_counter()

        def work(_: int) -> int:
            done = 0
            while time.perf_counter() - began < seconds:
                workflow(done)
                done += 1
            return done

        if in_flight == 1:
            return work(0) / (time.perf_counter() - began)
        with ThreadPoolExecutor(in_flight) as threads:
            done = sum(threads.map(work, range(in_flight)))
        return done / (time.perf_counter() - began)

    return measure


def _nothing(n: int) -> int:
    return n


def _durable(connection: Any, _: object) -> None:  # noqa: ANN401 - whatever driver SQLAlchemy uses
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def main(mode: str, folder: Path) -> None:
    """Serve until nobody asks any more."""
    if mode == "durable":
        sqlalchemy.event.listen(sqlalchemy.Engine, "connect", _durable)
    database = f"sqlite:///{folder / 'dbos.sqlite'}"
    DBOS(
        config={
            "name": "bench",
            "system_database_url": database,
            "console_log_level": "ERROR",
            "log_level": "ERROR",
        }
    )
    measure = measured()
    DBOS.launch()
    try:
        serve(measure)
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
