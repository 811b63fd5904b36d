"""The port that figures go through.

``Meter`` is all that Penstock asks of a metrics system. ``SILENT`` is the default. ``LabelledMeter`` is what
adapters are made of: it keeps the number of series bounded, whatever users call their branches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Final, Protocol

from penstock.metrics.table import BRANCH, Metric

BRANCHES_MAX: Final = 100
OTHER: Final = "(other)"
"""Stands for every branch beyond the first so many; no branch can have this name."""


class Meter(Protocol):
    """Takes figures. Called by many threads at once, in the middle of commits: it must be quick.

    A metric comes from ``penstock.metrics.table`` or from a table format, and every call gives a value to
    each of its labels, as keywords: each metric has labels of its own, and ``LabelledMeter`` refuses others.
    """

    def count(self, metric: Metric, amount: float = 1, /, **labels: str) -> None:
        """So much more of something."""

    def observe(self, metric: Metric, value: float, /, **labels: str) -> None:
        """One more value of many; times in seconds."""

    def gauge(self, metric: Metric, value: float, /, **labels: str) -> None:
        """How much there is of something now."""


class SilentMeter:
    """Takes figures and forgets them."""

    def count(self, metric: Metric, amount: float = 1, /, **labels: str) -> None:
        pass

    def observe(self, metric: Metric, value: float, /, **labels: str) -> None:
        pass

    def gauge(self, metric: Metric, value: float, /, **labels: str) -> None:
        pass


SILENT: Final = SilentMeter()


class LabelledMeter(ABC):
    """A meter that hands on each figure with the values of its labels, in the order the metric names them.

    The first ``branches_max`` branches to be seen keep their names, all later ones share ``OTHER``: a lake
    may have any number of branches, a metrics system may not have as many series. A gauge of such a later
    branch is left out, since what one of many set last says nothing about them.
    """

    def __init__(self, branches_max: int = BRANCHES_MAX) -> None:
        self._branches_max = branches_max
        self._branches: set[str] = set()
        self._branches_lock = Lock()

    def declare(self, metrics: Iterable[Metric]) -> None:  # noqa: B027
        """Show metrics of table formats before there are figures of them. A meter may leave it."""

    def count(self, metric: Metric, amount: float = 1, /, **labels: str) -> None:
        self._count(metric, self._check_label_values(metric, labels), amount)

    def observe(self, metric: Metric, value: float, /, **labels: str) -> None:
        self._observe(metric, self._check_label_values(metric, labels), value)

    def gauge(self, metric: Metric, value: float, /, **labels: str) -> None:
        values = self._check_label_values(metric, labels)
        if OTHER not in values:
            self._gauge(metric, values, value)

    @abstractmethod
    def _count(self, metric: Metric, values: tuple[str, ...], amount: float) -> None: ...

    @abstractmethod
    def _observe(self, metric: Metric, values: tuple[str, ...], value: float) -> None: ...

    @abstractmethod
    def _gauge(self, metric: Metric, values: tuple[str, ...], value: float) -> None: ...

    def _check_label_values(self, metric: Metric, labels: Mapping[str, str]) -> tuple[str, ...]:
        if len(labels) != len(metric.labels):
            raise TypeError(f"{metric.name} has the labels {metric.labels}, not {tuple(labels)}")
        if BRANCH in labels and labels[BRANCH] not in self._branches:
            labels = {**labels, BRANCH: self._shorten_branch_label(labels[BRANCH])}
        return tuple([labels[name] for name in metric.labels])

    def _shorten_branch_label(self, branch: str) -> str:
        with self._branches_lock:
            if branch not in self._branches:
                if len(self._branches) >= self._branches_max:
                    return OTHER
                self._branches.add(branch)
            return branch
