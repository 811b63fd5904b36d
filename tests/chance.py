"""Where chance begins, and how far it is followed by which run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings

Seed: TypeAlias = "int | ParameterSet"

RecordCounts: TypeAlias = Callable[[Mapping[str, int]], None]
"""What a long test counted, by the fixture `record_counts`."""


def seeds(count: int) -> list[Seed]:
    """For `parametrize`: so many seeds, of which `make test` takes the first third and `make verify` all.

    One seed tries the rule; each further one tries it on another history. What breaks a rule is seen by most
    of them, and what only a few see is looked for where there is time.
    """
    quick = max(2, count // 3)
    return [seed if seed < quick else pytest.param(seed, marks=pytest.mark.verify) for seed in range(count)]


def examples(count: int) -> int:
    """For Hypothesis: so many examples in `make verify`, of which `make test` takes a third."""
    return count // 3 if settings.get_current_profile_name() == "test" else count


def times(count: int) -> int:
    """For a loop in a test that is marked `reliability`: so often there, a quarter of it in its share."""
    return count if settings.get_current_profile_name() == "reliability" else max(1, count // 4)


T = TypeVar("T")


def share(values: Iterable[T], count: int = 1) -> list[T | ParameterSet]:
    """For `parametrize` of a test that is marked `reliability`: the first cases are `make verify`'s too."""
    return [
        pytest.param(one, marks=pytest.mark.share) if at < count else one for at, one in enumerate(values)
    ]
