"""What the benchmark computes is right: a wrong number would be worse than none."""

from tests.bench.numbers import Latencies, Window, per_call, traced_syncs

LOG = """\
4711 1764455220.100000 fdatasync(7)      = 0
4712 1764455220.200000 fsync(8 <unfinished ...>
4711 1764455220.250000 fdatasync(7)      = -1 EIO (Input/output error)
4712 1764455220.300000 <... fsync resumed>) = 0
4711 1764455221.000000 +++ exited with 0 +++
"""


def test_a_percentile_is_a_duration_that_was_measured() -> None:
    """The nearest rank: half of all are at most p50, and p99 of few is the slowest."""
    latencies = Latencies([0.004, 0.001, 0.003, 0.002])
    assert [latencies.percentile_ms(percent) for percent in (50, 75, 99, 100)] == [2.0, 3.0, 4.0, 4.0]
    assert Latencies([0.005]).percentile_ms(50) == 5.0


def test_each_sync_is_counted_once_at_its_beginning() -> None:
    """A call that strace shows in two lines is one, and one that failed is one as well."""
    moments = traced_syncs(LOG)
    assert moments == [1764455220.1, 1764455220.2, 1764455220.25]
    assert Window(began=1764455220.15, ended=1764455220.25, calls=1).count(moments) == 2


def test_what_is_rare_is_counted_over_all_windows() -> None:
    """Three syncs of one checkpoint are 0.03 of a hundred calls, whichever window they fall into."""
    windows = [Window(began=began, ended=began + 1.0, calls=25) for began in (0.0, 10.0, 20.0, 30.0)]
    assert per_call(windows, [20.1, 20.2, 20.3, 15.0]) == 0.03
