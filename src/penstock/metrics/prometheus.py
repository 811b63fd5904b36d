"""Figures for Prometheus, through the official client library."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Any

from penstock.errors import InvalidRequest
from penstock.metrics.meter import BRANCHES_MAX, LabelledMeter
from penstock.metrics.table import METRICS, Metric, Type

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
except ImportError:
    raise InvalidRequest(
        "metrics for Prometheus need the library prometheus_client: pip install 'penstock[prometheus]'"
    ) from None


class PrometheusMeter(LabelledMeter):
    """Registers every metric with a registry, to be scraped from there.

    ::

        registry = CollectorRegistry()
        lake = penstock.open("warehouse", meter=PrometheusMeter(registry))
        start_http_server(9464, registry=registry)
    """

    def __init__(self, registry: CollectorRegistry, branches_max: int = BRANCHES_MAX) -> None:
        super().__init__(branches_max)
        self._registry = registry
        self._declared: dict[str, Any] = {}
        self._declaring = Lock()
        self._series: dict[tuple[str, ...], Any] = {}
        self.declare(METRICS)

    def declare(self, metrics: Iterable[Metric]) -> None:
        with self._declaring:
            for metric in metrics:
                if metric.name not in self._declared:
                    self._declared[metric.name] = _declare_metric(metric, self._registry)

    def _count(self, metric: Metric, values: tuple[str, ...], amount: float) -> None:
        self._find_series(metric, values).inc(amount)

    def _gauge(self, metric: Metric, values: tuple[str, ...], value: float) -> None:
        self._find_series(metric, values).set(value)

    def _observe(self, metric: Metric, values: tuple[str, ...], value: float) -> None:
        self._find_series(metric, values).observe(value)

    def _find_series(self, metric: Metric, values: tuple[str, ...]) -> Any:
        """The client library's object for one series; looking it up there takes several times as long."""
        key = (metric.name, *values)
        collector = self._series.get(key)
        if collector is None:
            self.declare((metric,))
            declared = self._declared[metric.name]
            collector = self._series[key] = declared.labels(*values) if values else declared
        return collector


def _declare_metric(metric: Metric, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    if metric.type is Type.COUNTER:
        return Counter(metric.name, metric.help, metric.labels, registry=registry)
    if metric.type is Type.GAUGE:
        return Gauge(metric.name, metric.help, metric.labels, registry=registry)
    return Histogram(metric.name, metric.help, metric.labels, registry=registry, buckets=metric.buckets)
