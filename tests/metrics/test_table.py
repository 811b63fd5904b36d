"""The metrics are declared well: for people, for Prometheus and for OpenTelemetry."""

from __future__ import annotations

import re

import pytest

from penstock.formats.delta import metrics as delta
from penstock.formats.files import metrics as files
from penstock.formats.lance import metrics as lance
from penstock.formats.registry import list_format_metrics
from penstock.metrics import table
from penstock.metrics.table import METRICS, Metric, Type

NAMES = {
    "penstock_requests_total": ("branch", "kind", "outcome"),
    "penstock_request_seconds": ("kind",),
    "penstock_queue_depth": ("branch",),
    "penstock_queue_wait_seconds": (),
    "penstock_batch_requests": (),
    "penstock_swaps_lost_total": ("branch",),
    "penstock_tries_total": ("branch",),
    "penstock_store_seconds": ("operation",),
    "penstock_store_errors_total": ("operation", "error"),
    "penstock_store_swaps_total": ("branch", "outcome"),
    "penstock_store_objects_read_total": (),
    "penstock_store_objects_written_total": (),
    "penstock_store_objects_deleted_total": (),
    "penstock_store_read_bytes_total": (),
    "penstock_store_written_bytes_total": (),
    "penstock_cache_objects_total": ("result",),
    "penstock_cache_bytes": (),
    "penstock_http_requests_total": ("api", "route", "status"),
    "penstock_http_request_seconds": ("api", "route"),
    "penstock_http_open_requests": (),
    "penstock_http_refusals_total": ("reason",),
    "penstock_http_turn_wait_seconds": (),
    "penstock_http_stopped_reads_total": ("reason",),
    "penstock_http_connections": (),
    "penstock_delta_unpublished_versions": (),
    "penstock_delta_unpublished_seconds": (),
    "penstock_delta_published_total": (),
    "penstock_delta_publish_errors_total": ("error",),
    "penstock_delta_foreign_commits_total": (),
    "penstock_delta_swept_files_total": ("kind",),
    "penstock_delta_swept_bytes_total": ("kind",),
    "penstock_lance_unpromoted_versions": (),
    "penstock_lance_unpromoted_seconds": (),
    "penstock_lance_promoted_total": (),
    "penstock_lance_promote_errors_total": ("error",),
    "penstock_lance_foreign_manifests_total": (),
    "penstock_files_swept_files_total": (),
    "penstock_files_swept_bytes_total": (),
}
"""What dashboards are built on: a change here breaks them."""
EVERY = (*METRICS, *list_format_metrics())


def test_names_and_labels_are_as_promised() -> None:
    assert {metric.name: metric.labels for metric in EVERY} == NAMES


def test_every_metric_that_is_declared_is_listed_once() -> None:
    modules = (table, delta, files, lance)
    declared = {
        id(value) for module in modules for value in vars(module).values() if isinstance(value, Metric)
    }
    assert sorted(declared) == sorted(map(id, EVERY))


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
def test_a_metric_says_what_it_is(metric: Metric) -> None:
    assert re.fullmatch(r"penstock(_[a-z]+)+", metric.name)
    assert metric.help[0].isupper()
    assert metric.help.endswith(".")
    assert metric.name.endswith("_total") == (metric.type is Type.COUNTER)
    assert bool(metric.buckets) == (metric.type is Type.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert metric.name.removesuffix("_total").endswith("_seconds") == (metric.unit == "s")
    assert metric.name.removesuffix("_total").endswith("_bytes") == (metric.unit == "By")
    assert re.fullmatch(r"s|By|\{[a-z]+\}", metric.unit)
