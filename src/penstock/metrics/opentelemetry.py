"""Figures for OpenTelemetry, through its API; the SDK and its exporters are the application's choice."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Any

from penstock.errors import InvalidRequest
from penstock.metrics.meter import BRANCHES_MAX, LabelledMeter
from penstock.metrics.table import METRICS, Metric, Type

try:
    from opentelemetry.metrics import MeterProvider
except ImportError:
    raise InvalidRequest(
        "metrics for OpenTelemetry need the library opentelemetry-api: pip install 'penstock[opentelemetry]'"
    ) from None


class OpenTelemetryMeter(LabelledMeter):
    """Makes an instrument of every metric, under the instrumentation scope ``penstock``.

    ::

        provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
        lake = penstock.open("warehouse", meter=OpenTelemetryMeter(provider))
    """

    def __init__(self, meter_provider: MeterProvider, branches_max: int = BRANCHES_MAX) -> None:
        super().__init__(branches_max)
        self._meter = meter_provider.get_meter("penstock")
        self._declaring = Lock()
        self._instruments: dict[str, Any] = {}
        self.declare(METRICS)

    def declare(self, metrics: Iterable[Metric]) -> None:
        with self._declaring:
            for metric in metrics:
                if metric.name not in self._instruments:
                    self._instruments[metric.name] = self._make_instrument(metric)

    def _make_instrument(self, metric: Metric) -> Any:
        if metric.type is Type.COUNTER:
            return self._meter.create_counter(metric.name, metric.unit, metric.help)
        if metric.type is Type.GAUGE:
            return self._meter.create_gauge(metric.name, metric.unit, metric.help)
        return self._meter.create_histogram(
            metric.name, metric.unit, metric.help, explicit_bucket_boundaries_advisory=metric.buckets
        )

    def _find_instrument(self, metric: Metric) -> Any:
        if metric.name not in self._instruments:
            self.declare((metric,))
        return self._instruments[metric.name]

    def _count(self, metric: Metric, values: tuple[str, ...], amount: float) -> None:
        self._find_instrument(metric).add(amount, _label_attributes(metric, values))

    def _gauge(self, metric: Metric, values: tuple[str, ...], value: float) -> None:
        self._find_instrument(metric).set(value, _label_attributes(metric, values))

    def _observe(self, metric: Metric, values: tuple[str, ...], value: float) -> None:
        self._find_instrument(metric).record(value, _label_attributes(metric, values))


def _label_attributes(metric: Metric, values: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(metric.labels, values, strict=True))
