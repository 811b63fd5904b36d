"""A life of a table: everything that a writer can do to it, and the rows that it has after each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import UnsupportedFeature
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.formats.delta.feature_tables import FeatureTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Writer(Protocol):
    """Changes rows of a table."""

    def create(self, lake: Lake, key: str, numbers: Sequence[int]) -> None: ...
    def append(self, table: Table, numbers: Sequence[int]) -> None: ...
    def overwrite(self, table: Table, numbers: Sequence[int]) -> None: ...
    def delete(self, table: Table, number: int) -> None: ...
    def update(self, table: Table, number: int, name: str) -> None: ...
    def merge(self, table: Table, name: str, numbers: Sequence[int]) -> None: ...


class ArrowWriter:
    """Without Spark."""

    def __init__(self, feature: FeatureTable) -> None:
        self._feature = feature

    def rows(self, numbers: Sequence[int], name: str = "") -> pa.Table:
        extra = {column: value for column, (_, value, _) in self._feature.extra.items()}
        made = [{"id": number, "name": name or f"n{number}", **extra} for number in numbers]
        return pa.Table.from_pylist(made, schema=self._feature.arrow_schema)

    def create(self, lake: Lake, key: str, numbers: Sequence[int]) -> None:
        feature = self._feature
        table = lake.delta.create(
            key, schema=feature.schema, properties=feature.own_properties, **feature.creation
        )
        table.append(self.rows(numbers))

    def append(self, table: Table, numbers: Sequence[int]) -> None:
        table.append(self.rows(numbers))

    def overwrite(self, table: Table, numbers: Sequence[int]) -> None:
        table.overwrite(self.rows(numbers))

    def delete(self, table: Table, number: int) -> None:
        table.delete(f"id = {number}")

    def update(self, table: Table, number: int, name: str) -> None:
        table.update({"name": f"'{name}'"}, f"id = {number}")

    def merge(self, table: Table, name: str, numbers: Sequence[int]) -> None:
        rows = self.rows(numbers, name)
        inserted = {column: f"source.{column}" for column in rows.column_names}
        statement = table.merge(rows, "target.id = source.id").when_matched_update({"name": "source.name"})
        statement.when_not_matched_insert(inserted).commit()


class SparkWriter:
    """By ``penstock.spark``."""

    def __init__(self, feature: FeatureTable, spark: SparkSession) -> None:
        self._feature, self._spark = feature, spark

    def rows(self, numbers: Sequence[int], name: str = "") -> DataFrame:
        pairs = [(number, name or f"n{number}") for number in numbers]
        df = self._spark.createDataFrame(pairs, "id long, name string").coalesce(1)
        return df.selectExpr(
            "*", *(f"{text} AS {column}" for column, (_, _, text) in self._feature.extra.items())
        )

    def create(self, lake: Lake, key: str, numbers: Sequence[int]) -> None:
        from penstock.spark.writer import write

        feature = self._feature
        write(self.rows(numbers), key, lake=lake, properties=feature.own_properties, **feature.creation)

    def append(self, table: Table, numbers: Sequence[int]) -> None:
        from penstock.spark.writer import write

        write(self.rows(numbers), table.key, lake=table.lake, branch=table.require_branch())

    def overwrite(self, table: Table, numbers: Sequence[int]) -> None:
        from penstock.spark.writer import write

        write(self.rows(numbers), table.key, lake=table.lake, mode="overwrite")

    def delete(self, table: Table, number: int) -> None:
        from penstock.spark.row_changes import delete

        delete(self._spark, table.key, f"id = {number}", lake=table.lake)

    def update(self, table: Table, number: int, name: str) -> None:
        from penstock.spark.row_changes import update

        update(self._spark, table.key, {"name": f"'{name}'"}, f"id = {number}", lake=table.lake)

    def merge(self, table: Table, name: str, numbers: Sequence[int]) -> None:
        from penstock.spark.merge_builder import merge

        rows = self.rows(numbers, name)
        inserted = {column: f"source.{column}" for column in rows.columns}
        builder = merge(rows, table.key, "target.id = source.id", lake=table.lake)
        builder.when_matched_update({"name": "source.name"}).when_not_matched_insert(inserted).commit()


Rows = dict[int, str]
"""Names by ids."""


class FeatureLife:
    """A table of a lake to which all happens that can; what is refused leaves it as it was."""

    def __init__(self, lake: Lake, key: str, writer: Writer, rows: Rows, other: Writer) -> None:
        """``other`` brings rows where the writer cannot, for a commit to be reverted."""
        self.lake, self.key, self._writer, self._other = lake, key, writer, other
        self.rows = rows
        self.table = lake.table(key)
        self.versions: dict[int, Rows] = {self.table.version: dict(rows)}
        """The rows that versions have, by their numbers."""
        self.refused: dict[str, UnsupportedFeature] = {}
        """Operations that were refused by the name of a feature."""
        self._next = max(rows) + 1

    def live(self, operations: Sequence[str]) -> None:
        """Let operations happen, in their order."""
        ways: dict[str, Callable[[], Rows]] = {
            "append": self._append,
            "overwrite": self._overwrite,
            "delete": self._delete,
            "update": self._update,
            "merge": self._merge,
            "branch and merge": self._branch,
            "revert": self._revert,
            "restore": self._restore,
        }
        for operation in operations:
            if operation not in ways:
                continue
            before = self.table.version
            try:
                self.rows = ways[operation]()
            except UnsupportedFeature as refusal:
                self.refused[operation] = refusal
                assert self.table.version == before, operation
            self.versions[self.table.version] = dict(self.rows)

    def _new(self, count: int = 2) -> Rows:
        first, self._next = self._next, self._next + count
        return {number: f"n{number}" for number in range(first, self._next)}

    def _append(self) -> Rows:
        new = self._new()
        self._writer.append(self.table, list(new))
        return {**self.rows, **new}

    def _overwrite(self) -> Rows:
        new = self._new(4)
        self._writer.overwrite(self.table, list(new))
        return new

    def _delete(self) -> Rows:
        gone = min(self.rows)
        self._writer.delete(self.table, gone)
        return {number: name for number, name in self.rows.items() if number != gone}

    def _update(self) -> Rows:
        changed = min(self.rows)
        self._writer.update(self.table, changed, "updated")
        return {**self.rows, changed: "updated"}

    def _merge(self) -> Rows:
        both = [sorted(self.rows)[1], *self._new(1)]
        self._writer.merge(self.table, "merged", both)
        return {**self.rows, **dict.fromkeys(both, "merged")}

    def _branch(self) -> Rows:
        """Two branches that both change the table."""
        name = f"side-{self.key.replace('.', '-')}"
        branch = self.lake.branch(name).create()
        there, here = self._new(1), self._new(1)
        self._writer.append(self.lake.table(self.key, name), list(there))
        self._writer.append(self.table, list(here))
        branch.merge_into("main")
        return {**self.rows, **there, **here}

    def _revert(self) -> Rows:
        """Rows come, and the commit that brought them is taken back."""
        new = list(self._new())
        try:
            self._writer.append(self.table, new)
        except UnsupportedFeature:
            self._other.append(self.table, new)
        self.lake.revert("main")
        return self.rows

    def _restore(self) -> Rows:
        first = min(self.versions)
        self.table.restore(version=first)
        return self.versions[first]
