"""Figures kept in this process, to be read at any time: for programs, benchmarks and tests."""

from __future__ import annotations

import math
from collections import defaultdict
from threading import Lock
from typing import Final, NamedTuple

import msgspec

from penstock.metrics.meter import BRANCHES_MAX, LabelledMeter
from penstock.metrics.table import Metric

PARTS: Final = 16
"""Of every doubling of a value: percentiles are off by less than 1/16."""
POWER_MIN: Final = -30
POWER_MAX: Final = 50
"""Smaller and larger values count as these powers of two: a nanosecond, a petabyte."""


class Series(NamedTuple):
    """One metric with one value for each of its labels."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()


class ValueSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of many values without keeping them."""

    count: int
    sum: float
    max: float
    p50: float
    p99: float


class MetricsSnapshot(msgspec.Struct, frozen=True):
    """All figures at one moment."""

    counts: dict[Series, float]
    gauges: dict[Series, float]
    distributions: dict[Series, ValueSummary]

    def count(self, metric: Metric, **labels: str) -> float:
        """A counter's value; the sum over all values of those labels that are not given."""
        wanted_labels = labels.items()
        return sum(
            value
            for series, value in self.counts.items()
            if series.name == metric.name and wanted_labels <= dict(series.labels).items()
        )

    def gauge(self, metric: Metric, **labels: str) -> float | None:
        """A gauge's value, ``None`` if it was never set."""
        return self.gauges.get(_make_series(metric, tuple(labels[name] for name in metric.labels)))

    def distribution(self, metric: Metric, **labels: str) -> ValueSummary | None:
        """A histogram's figures, ``None`` if nothing was observed."""
        return self.distributions.get(_make_series(metric, tuple(labels[name] for name in metric.labels)))


class Metrics(LabelledMeter):
    """A meter whose figures are read by ``snapshot``. Its size depends on the series, not on the figures.

    >>> from penstock.metrics.table import BATCH_REQUESTS, TRIES
    >>> metrics = Metrics()
    >>> metrics.count(TRIES, branch="main")
    >>> metrics.count(TRIES, 2, branch="audit")
    >>> for requests in (1, 1, 64):
    ...     metrics.observe(BATCH_REQUESTS, requests)
    >>> now = metrics.snapshot()
    >>> now.count(TRIES), now.count(TRIES, branch="main")
    (3, 1)
    >>> now.distribution(BATCH_REQUESTS)
    Distribution(count=3, sum=66.0, max=64, p50=1.0, p99=64.0)
    """

    def __init__(self, branches_max: int = BRANCHES_MAX) -> None:
        super().__init__(branches_max)
        self._lock = Lock()
        self._counts: defaultdict[Series, float] = defaultdict(int)
        self._gauges: dict[Series, float] = {}
        self._histograms: defaultdict[Series, _Histogram] = defaultdict(_Histogram)

    def snapshot(self) -> MetricsSnapshot:
        """The figures as they are now."""
        with self._lock:
            return MetricsSnapshot(
                dict(self._counts),
                dict(self._gauges),
                {series: histogram.summarize_values() for series, histogram in self._histograms.items()},
            )

    def _count(self, metric: Metric, values: tuple[str, ...], amount: float) -> None:
        series = _make_series(metric, values)
        with self._lock:
            self._counts[series] += amount

    def _gauge(self, metric: Metric, values: tuple[str, ...], value: float) -> None:
        series = _make_series(metric, values)
        with self._lock:
            self._gauges[series] = value

    def _observe(self, metric: Metric, values: tuple[str, ...], value: float) -> None:
        series = _make_series(metric, values)
        with self._lock:
            self._histograms[series].add_value(value)


def _make_series(metric: Metric, values: tuple[str, ...]) -> Series:
    return Series(metric.name, tuple(zip(metric.labels, values, strict=True)))


class _Histogram:
    """Counts of values that lie close together: bounded, whatever is added."""

    def __init__(self) -> None:
        self._count, self._sum, self._max = 0, 0.0, 0.0
        self._parts: defaultdict[int, int] = defaultdict(int)

    def add_value(self, value: float) -> None:
        self._count += 1
        self._sum += value
        self._max = max(self._max, value)
        self._parts[_find_bucket(value)] += 1

    def summarize_values(self) -> ValueSummary:
        return ValueSummary(
            count=self._count,
            sum=self._sum,
            max=self._max,
            p50=self._estimate_quantile(0.50),
            p99=self._estimate_quantile(0.99),
        )

    def _estimate_quantile(self, share: float) -> float:
        """The smallest value that so many are not larger than, up to the width of a part."""
        remaining = math.ceil(share * self._count)
        for part in sorted(self._parts):
            remaining -= self._parts[part]
            if remaining <= 0:
                return min(_lower_bound(part), self._max)
        return self._max


def _find_bucket(value: float) -> int:
    """The number of the part that a value lies in; parts are ordered as values are."""
    if value < 2.0**POWER_MIN:
        return 0
    mantissa, power = math.frexp(min(value, 2.0**POWER_MAX))
    return 1 + (power - POWER_MIN) * PARTS + int((mantissa - 0.5) * 2 * PARTS)


def _lower_bound(bucket: int) -> float:
    if bucket == 0:
        return 0.0
    power, within = divmod(bucket - 1, PARTS)
    return math.ldexp(0.5 + within / (2 * PARTS), power + POWER_MIN)
