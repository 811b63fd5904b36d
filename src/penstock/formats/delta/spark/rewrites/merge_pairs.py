"""Plans a MERGE: joins the rows of a table with those of a source, and writes the results.

It takes two looks. The first finds the files that hold rows to be changed, and whether any row would be
changed twice. The second joins these files with the source again and writes what becomes of their rows. Where
the table has deletion vectors, it joins only the rows that the first look found. A merge that only inserts
needs no more than one look, and replaces no file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake import row_rewrite
from penstock.formats.delta.lake.calls import WriterReads
from penstock.formats.delta.lake.file_changes import count_live_rows
from penstock.formats.delta.lake.marked_files import uses_deletion_vectors
from penstock.formats.delta.lake.row_rewrite import RowCounts, RowRewrite
from penstock.formats.delta.lake.scan_plan import FILE
from penstock.formats.delta.protocol.actions import Action, Add
from penstock.formats.delta.protocol.column_rules import (
    CURRENT_DEFAULT,
    has_generated_value,
    list_generation_expressions,
)
from penstock.formats.delta.protocol.row_ids import FileRowIds
from penstock.formats.delta.rows.deletion_words import BitmapWords
from penstock.formats.delta.spark.job.computed_columns import add_generated_columns, make_default
from penstock.formats.delta.spark.rewrites import outcome_rows
from penstock.formats.delta.spark.rewrites.assignments import (
    Path,
    assign_values,
    find_unassigned_columns,
    make_expression,
    make_row,
)
from penstock.formats.delta.spark.rewrites.outcome_rows import KEEP
from penstock.formats.delta.spark.rewrites.row_conditions import (
    check_deterministic,
    check_of_one_row,
    make_necessary_target_condition,
)
from penstock.formats.delta.spark.rewrites.row_marks import (
    WORD,
    collect_rows,
    collect_words,
    group_by_word,
    mark_files,
)
from penstock.formats.delta.spark.scan.deletions import make_word_bits
from penstock.formats.delta.spark.scan.scans import ROW, picked_rows, read_rows
from penstock.formats.rows.arrow_types import pc
from penstock.lake.row_changes import (
    DELETE,
    INSERT,
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    MergeClause,
    deletes_all_matched,
)
from penstock.spark.analysis import AnalyzedCondition, explain_analysis, parse_condition
from penstock.spark.requests import Values
from penstock.spark.schemas import quote_name, to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.formats.delta.spark.job.tables import JobTable

_SOURCE: Final = "__penstock_source"
"""True in rows that the source has a part in."""
_CLAUSE: Final = "__penstock_clause"
"""The number of the clause that applies to a pair of rows; null if none does."""
_CHANGED: Final = "changed"
_MATCHED: Final = "matched"
_CHANGES: Final = "changes"
_MATCHES: Final = "matches"
_CHANGED_ROWS: Final = "changed_rows"
_DELETED_ROWS: Final = "deleted_rows"
_COUNTS: Final = (_MATCHES, _CHANGES, _CHANGED_ROWS, _DELETED_ROWS)
_APART: Final = "__penstock_apart"
_PAIR: Final = "__penstock_pair"
_CURRENT_TIME: Final = re.compile(
    r"(?<![\w.`'])(?:(?:current_date|current_timestamp|localtimestamp)\b|(?:now|curdate|getdate|current_time)\()",
    re.IGNORECASE,
)
"""What Spark takes for the same as long as it evaluates one plan, and no longer."""
_NAMED: Final = {
    MATCHED: "the table's and the source's",
    NOT_MATCHED: "the source's",
    NOT_MATCHED_BY_SOURCE: "the table's",
}
"""Whose columns there are in rows of a kind."""


class MergePlan:
    """A merge, at a version of the table and with the rows of the source."""

    def __init__(
        self, table: JobTable, source: DataFrame, on: AnalyzedCondition, clauses: Sequence[MergeClause]
    ) -> None:
        from pyspark.sql import functions as f

        self._table, self._on, self._clauses = table, on, clauses
        self._spark: SparkSession = source.sparkSession
        self._source_names = {name.lower() for name in source.columns}
        self._source = source.withColumn(_SOURCE, f.lit(True)).alias("source")
        kinds = {clause.kind for clause in clauses}
        self._inserts = NOT_MATCHED in kinds
        # Rows outside of what the condition can be true for are matched by no source.
        self._looks_everywhere = NOT_MATCHED_BY_SOURCE in kinds
        self._check_source(source)
        needed = None
        if not self._looks_everywhere:
            needed = make_necessary_target_condition(
                self._read_rows(()).crossJoin(self._source), on, table.schema
            )
        self._region = row_rewrite.make_table_part(table, needed)
        self._candidates = table.find_candidate_files(needed)

    def insert_unmatched(self) -> RowRewrite | None:
        """Add the rows of the source that match none."""
        from pyspark.sql import functions as f

        target = self._read_rows(self._candidates)
        joined = self._source.join(target, self._on.column, "left_anti")
        chosen = self._add_clause_number(joined).where(f.col(_CLAUSE).isNotNull())
        new = self._make_new_row(chosen, None)
        computed = self._generated_columns()
        with explain_analysis():
            flags = [
                flag.alias(f"{outcome_rows.COMPUTED}{number}")
                for number, flag in enumerate(computed.values())
            ]
            df = chosen.select(*(value.alias(name) for name, value in new.items()), *flags)
        by_name = {name: f.col(f"{outcome_rows.COMPUTED}{number}") for number, name in enumerate(computed)}
        df = add_generated_columns(df, self._table.schema, by_name).select(*map(quote_name, new))
        actions = self._table.write_rows(df)
        if not actions:
            return None
        reads = row_rewrite.read_set_of(self._region, None)
        return self._make_rewrite(actions, reads, RowCounts(inserted=_count_added_rows(actions)))

    def rewrite_matched(self) -> RowRewrite | None:
        """Rewrite the files that hold rows to be changed, and add what is to be inserted."""
        touched = self._find_touched_files()
        if not touched.changed and not self._inserts:
            return None
        goes = [self._candidates[number] for number in touched.changed]
        stays = [self._candidates[number] for number in touched.matched] if self._inserts else []
        has_changes = row_rewrite.has_feed(self._table) and bool(goes)
        if touched.marks is None:
            target = self._read_rows([*goes, *stays], self._table.final_row_ids([*goes, *stays]))
        else:
            target = self._marked_rows(touched.marks)
        df = self._make_outcomes(target, len(goes), touched.has_several)
        written = self._table.write_rows(
            outcome_rows.select_written(df, has_changes=has_changes), has_changes=has_changes
        )
        if not goes and not written:
            return None
        named = []
        if touched.marks is not None:
            marks = dict(enumerate(touched.marks.changed.values()))
            named = mark_files(self._table, goes, marks, written)
        return self._make_rewrite(
            [*row_rewrite.make_removes(goes), *named, *written],
            row_rewrite.read_set_of(self._region, stays),
            self._count_rows(touched, goes, written),
        )

    def _make_rewrite(self, actions: Sequence[Action], reads: WriterReads, counts: RowCounts) -> RowRewrite:
        parameters = {"predicate": self._on.told}
        return RowRewrite(self._table, "MERGE", parameters, actions, reads, counts.merge_metrics, counts)

    def _count_rows(
        self, touched: _TouchedFiles, goes: Sequence[Add], written: Sequence[Action]
    ) -> RowCounts:
        """How many rows change: those that were found first, and of the written ones those that are new."""
        updated = touched.changed_rows - touched.deleted_rows
        inserted: int | None = 0
        if self._inserts:
            rewritten: int | None = updated
            if touched.marks is None:
                before = count_live_rows(goes)
                rewritten = None if before is None else before - touched.deleted_rows
            after = _count_added_rows(written)
            inserted = None if after is None or rewritten is None else after - rewritten
        return RowCounts(touched.deleted_rows, updated, inserted)

    def _find_touched_files(self) -> _TouchedFiles:
        """The first look: which files hold rows to be changed, and which hold rows that are only matched."""
        if not self._candidates:
            return _TouchedFiles([], [], False)
        words = (
            collect_words(self._candidates, self._group_by_row_words)
            if uses_deletion_vectors(self._table)
            else None
        )
        if words is not None:
            marks = _RowMarks(collect_rows(words, _CHANGED), collect_rows(words, _MATCHED))
            files = [(number, number in marks.changed) for number in {**marks.changed, **marks.matched}]
            sums = {name: pc.sum(words[name]).as_py() or 0 for name in _COUNTS}
        else:
            marks, (files, sums) = None, self._find_files()
        more_matches, more_changes = sums[_MATCHES], sums[_CHANGES]
        if more_changes and not deletes_all_matched(self._clauses):
            self._refuse_several()
        return _TouchedFiles(
            changed=sorted(number for number, is_changed in files if is_changed),
            matched=sorted(number for number, is_changed in files if not is_changed),
            has_several=bool(more_matches),
            changed_rows=sums[_CHANGED_ROWS],
            deleted_rows=sums[_DELETED_ROWS],
            marks=marks,
        )

    def _find_files(self) -> tuple[list[tuple[int, bool]], dict[str, int]]:
        """The files that hold matched or changed rows, with whether these are changed; then the sums of what
        is counted of their rows."""
        from pyspark.sql import functions as f

        by_file = self._group_by_row_words(self._candidates).groupBy(FILE).agg(
            f.max(f.col(_CHANGED) != 0).alias(_CHANGED), *(f.sum(name).alias(name) for name in _COUNTS)
        )  # fmt: skip
        files = by_file.collect()
        sums = {name: sum(row[name] for row in files) for name in _COUNTS}
        return [(row[FILE], row[_CHANGED]) for row in files], sums

    def _make_pairs(self, files: Sequence[Add]) -> DataFrame:
        """The pairs of rows of files and of the source, with the clauses that apply to them."""
        how = "left_outer" if self._looks_everywhere else "inner"
        return self._add_clause_number(self._read_rows(files).join(self._source, self._on.column, how))

    def _group_by_row_words(self, files: Sequence[Add]) -> DataFrame:
        """The pairs of files by words of 64 rows: those with rows that are changed or matched.

        A row counts in as many pairs as there are, and has one bit: what is more is a pair too many.
        """
        from pyspark.sql import functions as f

        def collect_bits(condition: Column, name: str) -> Column:
            named = f.when(condition, make_word_bits(ROW))
            return f.coalesce(f.bit_or(named), f.lit(0).cast("long")).alias(name)

        deletes = [number for number, clause in enumerate(self._clauses) if clause.action == DELETE]
        counted = group_by_word(
            self._make_pairs(files),
            collect_bits(f.col(_CLAUSE).isNotNull(), _CLAUSE),
            collect_bits(f.col(_SOURCE).isNotNull(), _SOURCE),
            collect_bits(f.col(_CLAUSE).isin(deletes), _DELETED_ROWS),
            f.count(_CLAUSE).alias(_CHANGES),
            f.count(_SOURCE).alias(_MATCHES),
        )
        changed, matched = f.col(_CLAUSE), f.col(_SOURCE)
        return counted.where(changed.bitwiseOR(matched) != 0).select(
            FILE, WORD, changed.alias(_CHANGED),
            matched.bitwiseAND(f.bitwise_not(changed)).alias(_MATCHED),
            (f.col(_CHANGES) - f.bit_count(changed)).alias(_CHANGES),
            (f.col(_MATCHES) - f.bit_count(matched)).alias(_MATCHES),
            f.bit_count(changed).alias(_CHANGED_ROWS), f.bit_count(_DELETED_ROWS).alias(_DELETED_ROWS),
        )  # fmt: skip

    def _refuse_several(self) -> NoReturn:
        from pyspark.sql import functions as f

        by_row = self._make_pairs(self._candidates).groupBy(FILE, ROW).agg(f.count(_CLAUSE).alias(_CHANGES))
        several = by_row.where(f.col(_CHANGES) > 1).count()
        raise InvalidRequest(
            f"{several} row{('s' if several > 1 else '')} of '{self._table.key}' would be changed by "
            "several rows of the source, so the result would be ambiguous; at most one row of the source "
            f"may match each row by the condition {self._on.told!r}",
            table=str(self._table.key),
            rows=several,
        )

    def _marked_rows(self, marks: _RowMarks) -> DataFrame:
        """The rows that change, then those that are only matched, if that keeps others from being inserted:
        numbered by files of either kind."""
        chosen = [*marks.changed.items(), *(marks.matched.items() if self._inserts else ())]
        picked = [(self._candidates[number], words) for number, words in chosen]
        row_ids = self._table.final_row_ids([file for file, _ in picked])
        df = picked_rows(self._spark, self._table.snapshot, picked, numbered=True, row_ids=row_ids)
        return df.alias("target")

    def _make_outcomes(self, target: DataFrame, changed: int, has_several: bool) -> DataFrame:
        """The second look: what becomes of the rows of the first files, so many, and which rows are new.

        Rows of the other files are looked at so that what they hold is not inserted again.
        """
        from pyspark.sql import functions as f

        how = "full_outer" if self._inserts else "left_outer"
        joined = self._add_clause_number(target.join(self._source, self._on.column, how))
        if has_several:
            joined = _choose_pair_per_row(joined)
        # A row of a file that stays is nobody's business, even if a clause has come to apply to it since.
        outcome = f.when(f.col(FILE) >= changed, f.lit(None))
        for number, clause in enumerate(self._clauses):
            outcome = outcome.when(f.col(_CLAUSE) == number, clause.action)
        outcome = outcome.when(f.col(FILE).isNotNull(), KEEP)
        old = {field.name: _target_column(field.name) for field in self._table.schema.fields}
        new = self._make_new_row(joined, old)
        row_ids = outcome_rows.make_row_id_columns(self._table, outcome)
        with explain_analysis():
            computed = outcome_rows.ComputedRows(self._table.schema, self._generated_columns())
            return outcome_rows.outcome_rows(joined, old, new, outcome, row_ids, computed)

    def _generated_columns(self) -> dict[str, Column]:
        """The generated columns, each with the condition that a clause applies which sets no value for it."""
        from pyspark.sql import functions as f

        conditions = {}
        for name, _ in list_generation_expressions(self._table.metadata):
            applies = f.lit(False)
            for number, clause in enumerate(self._clauses):
                if clause.action != DELETE and not self._assigns_column(clause, name):
                    applies = applies | (f.col(_CLAUSE) == number)
            conditions[name] = f.coalesce(applies, f.lit(False))
        return conditions

    def _assigns_column(self, clause: MergeClause, name: str) -> bool:
        """Whether a clause says what a column is to be."""
        names = self._source_names if clause.values is None else clause.values
        return any(column.strip("`").lower() == name.lower() for column in names)

    def _read_rows(self, files: Sequence[Add], row_ids: Mapping[str, FileRowIds] | None = None) -> DataFrame:
        target = read_rows(self._spark, self._table.snapshot, files, numbered=True, row_ids=row_ids)
        return target.alias("target")

    def _add_clause_number(self, joined: DataFrame) -> DataFrame:
        """Pairs of rows with the clause that applies to them."""
        from pyspark.sql import functions as f

        has_target = FILE in joined.columns
        matched, inserted, unmatched = f.lit(False), f.lit(not has_target), f.lit(False)
        if has_target:
            matched = f.col(FILE).isNotNull() & f.col(_SOURCE).isNotNull()
            inserted, unmatched = f.col(FILE).isNull(), f.col(_SOURCE).isNull()
        kinds = {MATCHED: matched, NOT_MATCHED: inserted, NOT_MATCHED_BY_SOURCE: unmatched}
        applies = f.when(f.lit(False), f.lit(-1))
        for number, clause in enumerate(self._clauses):
            if has_target or clause.kind == NOT_MATCHED:
                meant = kinds[clause.kind] & parse_condition(clause.condition).column
                applies = applies.when(meant, number)
        with explain_analysis():
            return joined.withColumn(_CLAUSE, applies)

    def _make_new_row(self, joined: DataFrame, old: dict[str, Column] | None) -> dict[str, Column]:
        """The columns of the row that a pair of rows becomes."""
        from pyspark.sql import functions as f

        schema = self._table.schema
        empty = {field.name: f.lit(None).cast(field.dataType) for field in to_spark_schema(schema).fields}
        empty |= {
            field.name: make_default(field) for field in schema.fields if CURRENT_DEFAULT in field.metadata
        }
        became = dict(empty if old is None else old)
        for number, clause in enumerate(self._clauses):
            if clause.action == DELETE:
                continue
            values = assign_values(joined, self._clause_values(clause), schema)
            if clause.action == INSERT:
                self._check_given(values)
            base = empty if clause.action == INSERT or old is None else old
            for name, made in make_row(schema, base.__getitem__, values).items():
                if made is not became[name]:
                    became[name] = f.when(f.col(_CLAUSE) == number, made).otherwise(became[name])
        return became

    def _clause_values(self, clause: MergeClause) -> Values:
        if clause.values is not None:
            return clause.values
        from pyspark.sql import functions as f

        return {
            quote_name(field.name): f.col(f"source.{quote_name(field.name)}")
            for field in self._table.schema.fields
            if field.name.lower() in self._source_names
        }

    def _check_given(self, values: dict[Path, Column]) -> None:
        has_value = {field.name for field in self._table.schema.fields if has_generated_value(field)}
        for name in find_unassigned_columns(self._table.schema, values):
            if name in has_value:
                continue
            raise InvalidRequest(
                f"the column '{name}' of '{self._table.key}' is not nullable; give it a value in the "
                "insert clause",
                column=name,
            )

    def _check_source(self, source: DataFrame) -> None:
        """Refuse what Spark cannot make sense of, or what could be different at the second look, if any."""
        looks_once = all(clause.kind == NOT_MATCHED for clause in self._clauses)
        if not looks_once and _CURRENT_TIME.search(self._on.told):
            raise InvalidRequest(
                f"the condition {self._on.told!r} depends on the time at which it is evaluated, and a "
                "merge evaluates it twice; use a literal time"
            )
        # Without the columns that a merge puts beside them, which are nobody's to name.
        target = read_rows(self._spark, self._table.snapshot, ()).alias("target")
        source = source.alias("source")
        with explain_analysis():
            both = target.join(source, self._on.column, "inner")
        if not looks_once:
            check_deterministic(both, f"the condition {self._on.told!r}")
        named = {MATCHED: both, NOT_MATCHED: source, NOT_MATCHED_BY_SOURCE: target}
        for clause in self._clauses:
            place = f"in a clause for rows that are {clause.kind}, with {_NAMED[clause.kind]} columns: "
            condition = parse_condition(clause.condition).column
            values = (clause.values or {}).values()
            check_of_one_row(named[clause.kind], (condition, *map(make_expression, values)), place)
            with explain_analysis(place):
                chosen = named[clause.kind].where(condition)
            if not looks_once:
                check_deterministic(chosen, "a condition of a clause")


class _RowMarks(NamedTuple):
    """Rows of files, by the numbers of these among the candidates."""

    changed: dict[int, BitmapWords]
    matched: dict[int, BitmapWords]
    """Those that are matched, and not changed."""


class _TouchedFiles(NamedTuple):
    """What the first look has seen: files by their numbers among the candidates."""

    changed: list[int]
    matched: list[int]
    """Those with matched rows and nothing to be changed."""
    has_several: bool
    """Whether any row is matched by several of the source."""
    changed_rows: int = 0
    """How many rows change, …"""
    deleted_rows: int = 0
    """… and how many of them are deleted."""
    marks: _RowMarks | None = None
    """Their rows, where those that change are marked as deleted and files stay; ``None`` where files are
    written anew."""


def _count_added_rows(actions: Sequence[Action]) -> int | None:
    return count_live_rows(action for action in actions if isinstance(action, Add))


def _choose_pair_per_row(joined: DataFrame) -> DataFrame:
    """Of the pairs of a row of the table the one that a clause applies to, or any; rows without one stay."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    # Rows that only the source has are kept apart from each other, so that no task gets all of them.
    marked = joined.withColumn(_APART, f.when(f.col(FILE).isNull(), f.monotonically_increasing_id()))
    order = Window.partitionBy(FILE, ROW, _APART).orderBy(f.col(_CLAUSE).asc_nulls_last())
    return marked.withColumn(_PAIR, f.row_number().over(order)).where(f.col(_PAIR) == 1)


def _target_column(name: str) -> Column:
    from pyspark.sql import functions as f

    return f.col(f"target.{quote_name(name)}")
