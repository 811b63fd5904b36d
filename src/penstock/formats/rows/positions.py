"""Positions of rows in batches, as Arrow arrays, and masks of them."""

from __future__ import annotations

from typing import Any

from penstock.formats.rows.arrow_types import pa, pc


def number_rows(count: int, first: int = 0, step: int = 1) -> Any:
    """So many numbers from one on. Made by Arrow: a list of Python's takes a hundred times as long."""
    if not count:
        return pa.array([], pa.int64())
    steps = pa.repeat(pa.scalar(step, pa.int64()), count)
    return pc.cumulative_sum(steps, start=first - step)


def make_mask(positions: Any, count: int) -> Any:
    """A mask that is true at some positions."""
    if not count or not len(positions):
        return pa.repeat(pa.scalar(False), count)
    return pc.is_valid(pc.inverse_permutation(positions, max_index=count - 1))


def find_true(mask: Any) -> Any:
    """The positions at which an array of booleans is true."""
    return pc.indices_nonzero(mask).cast(pa.int64())


def scatter_values(mask: Any, values: Any) -> Any:
    """Values for the positions at which a mask is true, and nulls for the others."""
    places = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
    return values.take(pc.if_else(mask, places, pa.scalar(None, pa.int64())))
