"""Figures for OpenTelemetry, through its API; the SDK and its exporters are the application's choice."""

from __future__ import annotations

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
        meter = meter_provider.get_meter("penstock")
        self._counters = {
            metric.name: meter.create_counter(metric.name, metric.unit, metric.help)
            for metric in _metrics_of_type(Type.COUNTER)
        }
        self._gauges = {
            metric.name: meter.create_gauge(metric.name, metric.unit, metric.help)
            for metric in _metrics_of_type(Type.GAUGE)
        }
        self._histograms = {
            metric.name: meter.create_histogram(
                metric.name, metric.unit, metric.help, explicit_bucket_boundaries_advisory=metric.buckets
            )
            for metric in _metrics_of_type(Type.HISTOGRAM)
        }

    def _count(self, metric: Metric, values: tuple[str, ...], amount: float) -> None:
        self._counters[metric.name].add(amount, _label_attributes(metric, values))

    def _gauge(self, metric: Metric, values: tuple[str, ...], value: float) -> None:
        self._gauges[metric.name].set(value, _label_attributes(metric, values))

    def _observe(self, metric: Metric, values: tuple[str, ...], value: float) -> None:
        self._histograms[metric.name].record(value, _label_attributes(metric, values))


def _metrics_of_type(kind: Type) -> list[Metric]:
    return [metric for metric in METRICS if metric.type is kind]


def _label_attributes(metric: Metric, values: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(metric.labels, values, strict=True))
