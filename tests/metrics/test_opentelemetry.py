"""What OpenTelemetry would export, read back through the in-memory reader of its SDK."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from penstock.metrics.meter import OTHER
from penstock.metrics.opentelemetry import OpenTelemetryMeter
from penstock.metrics.table import (
    BATCH_REQUESTS,
    METRICS,
    QUEUE_DEPTH,
    REQUESTS,
    STORE_SECONDS,
    TRIES,
    Metric,
    Type,
)


class Exported:
    """A provider with a reader, and what the reader finds."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    @cache  # noqa: B019 - it lives as long as a test
    def metrics(self) -> dict[str, Any]:
        """All of them, collected once: before 1.45 the SDK tells of a gauge once after it was set."""
        data = self._reader.get_metrics_data()
        assert data is not None
        (resource,) = data.resource_metrics
        (scope,) = resource.scope_metrics
        assert scope.scope.name == "penstock"
        return {metric.name: metric for metric in scope.metrics}

    def points(self, name: str) -> dict[tuple[tuple[str, Any], ...], Any]:
        points = self.metrics()[name].data.data_points
        return {tuple(sorted(point.attributes.items())): point for point in points}


@pytest.fixture
def exported() -> Iterator[Exported]:
    made = Exported()
    yield made
    made.provider.shutdown()


def test_every_metric_is_an_instrument_with_its_unit_and_help(exported: Exported) -> None:
    meter = OpenTelemetryMeter(exported.provider)
    for metric in METRICS:
        labels = dict.fromkeys(metric.labels, "x")
        if metric.type is Type.COUNTER:
            meter.count(metric, **labels)
        elif metric.type is Type.GAUGE:
            meter.gauge(metric, 1, **labels)
        else:
            meter.observe(metric, 1, **labels)
    found = exported.metrics()
    assert {one.name: (one.unit, one.description) for one in found.values()} == {
        metric.name: (metric.unit, metric.help) for metric in METRICS
    }
    for metric in METRICS:
        (point,) = found[metric.name].data.data_points
        assert set(point.attributes) == set(metric.labels)


def test_a_metric_of_somebody_elses_format_is_an_instrument_with_its_first_figure(exported: Exported) -> None:
    own = Metric("penstock_journal_lines_total", Type.COUNTER, "Lines of journals.", (), "{lines}")
    meter = OpenTelemetryMeter(exported.provider)
    meter.count(own, 2)
    meter.count(own)
    (point,) = exported.metrics()[own.name].data.data_points
    assert point.value == 3


def test_counters_and_gauges_are_exported_with_their_labels(exported: Exported) -> None:
    meter = OpenTelemetryMeter(exported.provider)
    meter.count(REQUESTS, branch="main", kind="commit", outcome="ok")
    meter.count(REQUESTS, 4, branch="main", kind="commit", outcome="ok")
    meter.count(REQUESTS, branch="main", kind="commit", outcome="commit_conflict")
    meter.gauge(QUEUE_DEPTH, 9, branch="main")
    meter.gauge(QUEUE_DEPTH, 2, branch="main")
    requests = exported.points("penstock_requests_total")
    assert requests[("branch", "main"), ("kind", "commit"), ("outcome", "ok")].value == 5
    assert requests[("branch", "main"), ("kind", "commit"), ("outcome", "commit_conflict")].value == 1
    assert exported.points("penstock_queue_depth")[(("branch", "main"),)].value == 2
    assert exported.metrics()["penstock_requests_total"].data.is_monotonic


def test_histograms_have_the_buckets_of_the_table(exported: Exported) -> None:
    meter = OpenTelemetryMeter(exported.provider)
    for seconds in (0.00005, 0.003, 0.003, 99.0):
        meter.observe(STORE_SECONDS, seconds, operation="fetch")
    meter.observe(BATCH_REQUESTS, 64)
    point = exported.points("penstock_store_seconds")[(("operation", "fetch"),)]
    assert tuple(point.explicit_bounds) == STORE_SECONDS.buckets
    assert (point.count, point.max) == (4, 99.0)
    assert point.sum == pytest.approx(99.00605)
    assert [count for count in point.bucket_counts if count] == [1, 2, 1]
    assert tuple(exported.points("penstock_batch_requests")[()].explicit_bounds) == BATCH_REQUESTS.buckets


def test_the_number_of_branches_is_bounded(exported: Exported) -> None:
    meter = OpenTelemetryMeter(exported.provider, branches_max=2)
    for number in range(300):
        meter.count(TRIES, branch=f"b{number}")
        meter.gauge(QUEUE_DEPTH, number, branch=f"b{number}")
    tries = exported.points("penstock_tries_total")
    assert {dict(key)["branch"]: point.value for key, point in tries.items()} == {
        "b0": 1,
        "b1": 1,
        OTHER: 298,
    }
    assert {dict(key)["branch"] for key in exported.points("penstock_queue_depth")} == {"b0", "b1"}
