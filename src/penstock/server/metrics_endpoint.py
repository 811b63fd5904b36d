"""Figures: what ``/metrics`` says, about this process or about all that serve together.

Several workers write their figures to files of one directory, named by ``PROMETHEUS_MULTIPROC_DIR``, and each
of them answers for all. Counts and times are added up; a gauge is shown for each worker, by its process id.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from penstock.metrics.prometheus import PrometheusMeter

DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"
"""Must be set before this module is loaded: the library looks once."""


class MetricsEndpoint:
    """A meter, and the text of what was measured."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.meter = PrometheusMeter(self._registry)
        if DIRECTORY in os.environ:
            self._registry = CollectorRegistry()
            MultiProcessCollector(self._registry)  # type: ignore[no-untyped-call]
        else:
            ProcessCollector(registry=self._registry)

    def render_metrics(self) -> bytes:
        """All figures in the format that Prometheus scrapes."""
        return generate_latest(self._registry)


def read_samples(figures: bytes, name: str) -> Iterator[tuple[dict[str, str], float]]:
    """The labels and the value of each series of a metric, as ``MetricsEndpoint.render_metrics`` gives it."""
    for family in text_string_to_metric_families(figures.decode()):
        yield from ((sample.labels, sample.value) for sample in family.samples if sample.name == name)
