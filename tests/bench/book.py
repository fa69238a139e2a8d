"""What a run measured: for each metric one value of each round. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of one thing, a value of each round, in order."""

    values: Sequence[float]

    @property
    def median(self) -> float:
        """The value that half of them do not exceed."""
        return median(self.values)

    @property
    def spread(self) -> float:
        """The median distance from the median, in parts of the median: how noisy they are."""
        middle = self.median
        return median(abs(value - middle) for value in self.values) / middle if middle else 0.0


@dataclass(frozen=True, slots=True)
class Book:
    """Every value by its metric. Values of the same round stand at the same place."""

    metrics: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def note(self, values: Mapping[str, float]) -> None:
        """Add a value to each of these metrics."""
        for metric, value in values.items():
            self.metrics.setdefault(metric, []).append(value)

    def has(self, *metrics: str) -> bool:
        """Whether all of these were measured."""
        return all(metric in self.metrics for metric in metrics)

    def sample(self, metric: str) -> Sample:
        """Return the values of a metric."""
        return Sample(self.metrics[metric])

    def combined(self, function: Callable[..., float], *metrics: str) -> Sample:
        """Return what `function` makes of the values of each round: a ratio is one of values side by side."""
        return Sample([function(*values) for values in zip(*(self.metrics[m] for m in metrics), strict=True)])
