"""Replacements, by their ids: on whatever branch and in whatever form they came.

A replacement takes whatever files are there. Done a second time, where it was transplanted or merged before,
it would take the rows that came since. Its files do not tell that it was there: they may have been compacted,
or there were none. So each one has an id, from when it is ratified, and every commit that brings it elsewhere
names the id in its ``commitInfo``; so does a commit that undoes it. The owner alone does so: what a writer
says there is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Final
from uuid import uuid4

import msgspec

from penstock.formats.delta.branch_log.commits import REPLACES
from penstock.formats.delta.branch_log.line import Terms
from penstock.formats.delta.protocol.actions import CommitInfo
from penstock.formats.delta.protocol.partition_conditions import condition_columns, condition_outcomes
from penstock.formats.delta.protocol.transaction import Partitions, Region
from penstock.model import decoders

REPLACEMENTS: Final = "penstockReplacements"
"""In a ``commitInfo``, the replacements that are part of the commit, in their order."""
UNDONE: Final = "penstockUndone"
"""In a ``commitInfo``, the replacements that the commit undoes: from then on they replace nothing."""
NAMED_MAX_BYTES: Final = 64 * 1024
"""How long each of them may be: it is in the first line of a commit, which has to fit into an object."""
OWNERS: Final = frozenset({REPLACES, REPLACEMENTS, UNDONE})
"""What the owner says in a ``commitInfo``, and nobody else."""


COMPARED_MAX: Final = 1000
"""Values that are tried one by one, to find out whether a condition goes with any of them."""


class Replacement(msgspec.Struct, frozen=True, array_like=True):
    """A commit that replaced files, wherever it has been brought to."""

    id: bytes
    partitions: tuple[Partitions, ...]
    """Where they were; in the whole table for none."""
    is_whole: bool = True
    """Whether what names it is that commit and nothing else, and not the sum of several."""

    def is_in(self, other: Replacement) -> bool:
        """Whether another one took all that this one takes."""
        return not other.partitions or (
            bool(self.partitions) and all(partition in other.partitions for partition in self.partitions)
        )

    def meets(self, other: Replacement, schema_string: str) -> bool:
        """Whether there may be files that both take."""
        return any(
            _meet(partitions, its, schema_string)
            for partitions in self.partitions or (Partitions(),)
            for its in other.partitions or (Partitions(),)
        )


def new_replacements(terms: Terms) -> tuple[Replacement, ...]:
    """What a commit names that is ratified with these terms: itself, if it replaces files."""
    return () if terms.replaces is None else (Replacement(uuid4().bytes, terms.replaces),)


def naming(
    info: CommitInfo, replacements: Sequence[Replacement], undone: Sequence[Replacement] = ()
) -> CommitInfo:
    """A ``commitInfo`` that names these replacements and no others, and those that are undone; the very same
    if it should name none."""
    if not replacements and not undone and not OWNERS & info.fields.keys():
        return info
    fields = {name: value for name, value in info.fields.items() if name not in OWNERS}
    if replacements:
        fields[REPLACEMENTS] = msgspec.to_builtins(tuple(replacements))
    if undone:
        fields[UNDONE] = msgspec.to_builtins(tuple(undone))
    return CommitInfo(fields)


def named_in(info: CommitInfo | None) -> tuple[Replacement, ...]:
    """The replacements that a ``commitInfo`` names; none if that cannot be understood."""
    return _named_as(REPLACEMENTS, info)


def undone_in(info: CommitInfo | None) -> tuple[Replacement, ...]:
    """The replacements that a commit undoes, likewise."""
    return _named_as(UNDONE, info)


def _named_as(field: str, info: CommitInfo | None) -> tuple[Replacement, ...]:
    if info is None:
        return ()
    try:
        return decoders.convert(info.fields.get(field, ()), tuple[Replacement, ...])
    except msgspec.ValidationError:
        return ()


def in_sum(replacements: Sequence[Replacement]) -> tuple[Replacement, ...]:
    """The same as parts of a commit that is the sum of several."""
    return tuple(msgspec.structs.replace(replacement, is_whole=False) for replacement in replacements)


def is_too_long(replacements: Sequence[Replacement]) -> bool:
    return len(msgspec.json.encode(replacements)) > NAMED_MAX_BYTES


def _meet(partitions: Partitions, other: Partitions, schema_string: str) -> bool:
    for column in partitions.values.keys() & other.values.keys():
        region = Region(schema_string, (Partitions({column: other.values[column]}),))
        if not any(region.holds({column: value}) for value in partitions.values[column]):
            return False
    values = {**other.values, **partitions.values}
    return all(
        part.where is None or _may_hold(part.where, values, schema_string) for part in (partitions, other)
    )


def _may_hold(where: str, values: Mapping[str, Sequence[str | None]], schema_string: str) -> bool:
    """Whether a condition may be true for any of the given values of its columns. In doubt it may."""
    named = condition_columns(where, schema_string)
    partition_values = {name: several for name, several in values.items() if name.lower() in named}
    if prod(map(len, partition_values.values())) > COMPARED_MAX:
        return True
    return any(
        True in condition_outcomes(where, schema_string, dict(zip(partition_values, each, strict=True)))
        for each in product(*partition_values.values())
    )
