"""Merging rows into a Delta table, without Spark.

The source is held in memory, and the table is read in pieces. There are two looks at it, as with Spark. The
first reads the columns alone that the conditions name: it finds the files that hold rows to be changed,
whether any row would be changed twice, and which rows of the source match none. The second changes these
files. A merge that only inserts needs no more than one, and replaces no file.

Rows belong together where the equalities of the condition hold (``target.id = source.id``), which Arrow's
join finds, and the rest of it is true. A condition without any equality is tried for every pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake.file_changes import ChangedFiles, RowOutcomes
from penstock.formats.delta.lake.identity_numbers import ReservedNumbers
from penstock.formats.delta.lake.row_assignments import (
    TARGET,
    AssignedValues,
    RowAssignment,
    find_path,
    parse_assignments,
)
from penstock.formats.delta.lake.row_changes import (
    PlannedChange,
    change_rows,
    count_files,
    mark_numbers,
    read_files,
)
from penstock.formats.delta.lake.row_rewrite import RowRewrite, check_changeable, make_table_part, read_set_of
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.log.scan import FILE_NUMBER
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.protocol.column_rules import get_identity_column, has_generated_value
from penstock.formats.delta.protocol.predicate_sql import write_predicate
from penstock.formats.delta.rows.file_writer import check_features
from penstock.formats.delta.rows.row_checks import conform_batch
from penstock.formats.rows.arrow_types import allow_nulls, find_arrow_type, make_schema, pa, pc
from penstock.formats.rows.conversions import REAL
from penstock.formats.rows.expression_text import assign_value, parse_condition_text
from penstock.formats.rows.positions import find_true, make_mask, number_rows
from penstock.formats.rows.predicates import And, Column, ComparedValues, OneOf, Predicate
from penstock.formats.rows.row_expressions import (
    ColumnValue,
    RowExpression,
    RowFrames,
    SqlExpression,
    ValueComparison,
    find_needed_predicate,
    join_conditions,
    list_joined_parts,
)
from penstock.formats.rows.schema import StructType
from penstock.lake.call import CommitDescription
from penstock.lake.row_changes import (
    DELETE,
    INSERT,
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    ChangedRows,
    MergeClause,
    check_source_columns,
    deletes_all_matched,
)
from penstock.lake.row_input import open_row_reader

if TYPE_CHECKING:
    from penstock.lake.table import Table

SOURCE: Final = "source"
SOURCE_MAX_BYTES: Final = 256 * 1024 * 1024
"""How large a source may be in memory."""
PIECE_ROWS: Final = 1_000_000
PIECE_BYTES: Final = 32 * 1024 * 1024
"""How much of the table is joined with the source at once."""
PAIRS_MAX: Final = 2_000_000
"""How many pairs are tried at once where a condition has no equality."""
VALUES_MAX: Final = 1000
"""Up to how many values of the source are looked for in partitions one by one."""
_ROW: Final = "__penstock_row"
_SOURCE_ROW: Final = "__penstock_source_row"


def merge_rows(
    table: Table,
    source: Any,
    on: str | Sequence[str],
    clauses: tuple[MergeClause, ...],
    description: CommitDescription,
    idempotency_key: str | None,
) -> ChangedRows:
    """Merge rows into a table, as one version."""
    return change_rows(
        table,
        partial(_plan_merge, source=read_source(source, table), on=on, clauses=clauses),
        description,
        idempotency_key,
    )


def _plan_merge(
    job: DeltaJob, source: Any, on: str | Sequence[str], clauses: tuple[MergeClause, ...]
) -> PlannedChange | None:
    if all(clause.kind == NOT_MATCHED for clause in clauses):
        check_features(job.metadata)
    else:
        check_changeable(job)
    return _RowMergeRun(job, source, on, clauses).plan_change()


def read_source(data: Any, table: Table) -> Any:
    """The rows of a source as one batch. ``InvalidRequest`` if they are too many for memory."""
    reader = open_row_reader(data)
    arrow_schema = _type_null_columns(reader.schema, table)
    schema = make_schema(arrow_schema)
    batches, size = [], 0
    for batch in reader:
        batches.append(conform_batch(batch, schema))
        size += batches[-1].nbytes
        if size > SOURCE_MAX_BYTES:
            raise InvalidRequest(
                f"the source of the merge is larger than {SOURCE_MAX_BYTES >> 20} MiB in memory\n"
                "  Merge it in parts, or with Spark: penstock.spark.merge."
            )
    if not batches:
        return pa.RecordBatch.from_pylist([], arrow_schema)
    return as_batch(batches)


def _type_null_columns(schema: Any, table: Table) -> Any:
    """A schema in which columns that hold nothing but nulls are of the type that the table has for them."""
    if not any(pa.types.is_null(field.type) for field in schema):
        return schema
    columns = table.outside_read_set.schema
    fields = []
    for field in schema:
        column = columns.field(field.name) if pa.types.is_null(field.type) else None
        if column is None:
            fields.append(field)
        else:
            fields.append(pa.field(field.name, find_arrow_type(allow_nulls(column.type), field.name)))
    return pa.schema(fields)


def as_batch(batches: Sequence[Any]) -> Any:
    """Batches as a single one."""
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0] if table.num_rows else batches[0].slice(0, 0)


class _ParsedClause(NamedTuple):
    """A clause, with its expressions read."""

    kind: str
    action: str
    condition: SqlExpression | None
    assignment: RowAssignment | None
    """What rows become, unless they are deleted."""


class _RowPairs(NamedTuple):
    """Rows of a piece of the table and of the source that belong together."""

    rows: Any
    source_rows: Any


class _RowMergeRun:
    """A merge, at a version of the table and with the rows of the source."""

    def __init__(
        self, job: DeltaJob, source: Any, on: str | Sequence[str], clauses: Sequence[MergeClause]
    ) -> None:
        self._job, self._source = job, source
        self._tables = {TARGET: job.schema, SOURCE: make_schema(source.schema)}
        self._on = parse_condition_text(_condition_text(on, self._tables), self._tables)
        self._numbers = ReservedNumbers(job.lake, job.key, job.branch, job.metadata)
        self._clauses = [self._parse_clause(clause) for clause in clauses]
        self._deletes_all_matched = deletes_all_matched(clauses)
        kinds = {clause.kind for clause in clauses}
        self._inserts = NOT_MATCHED in kinds
        self._only_inserts = kinds == {NOT_MATCHED}
        # Rows outside of what the condition can be true for are matched by no source.
        self._looks_everywhere = NOT_MATCHED_BY_SOURCE in kinds
        self._keys, self._rest = _split_condition(self._on)
        self._source_keys = self._key_table(SOURCE, source, [key for _, key in self._keys], _SOURCE_ROW)
        self._is_matched = pa.repeat(pa.scalar(False), source.num_rows)
        self._several = 0

    def plan_change(self) -> PlannedChange | None:
        job = self._job
        needed = None if self._looks_everywhere else self._find_needed()
        text = None if needed is None else write_predicate(needed)
        candidates = job.find_candidate_files(text)
        changed, matched = self._find_touched_files(candidates)
        if not changed and not self._inserts:
            return None
        stays = None if self._only_inserts else [candidates[at] for at in matched] if self._inserts else []
        goes = [candidates[at] for at in changed]
        with ChangedFiles(job) as changes:
            if goes:
                changes.rewrite_files(goes, self._read_files, self._apply_clauses)
            self._insert_rows(changes, in_feed=bool(goes))
            actions = changes.finish_actions()
            if not actions:
                return None
            actions = [*mark_numbers(job, self._numbers), *actions]
        metrics = {
            "numTargetRowsUpdated": changes.updated,
            "numTargetRowsDeleted": changes.deleted,
            "numTargetRowsInserted": changes.inserted,
            "numSourceRows": self._source.num_rows,
            **count_files(actions),
        }
        reads = read_set_of(make_table_part(job, text), stays)
        rewrite = RowRewrite(job, "MERGE", {"predicate": self._on.text}, actions, reads, metrics)
        return PlannedChange(rewrite, changes.deleted, changes.updated, changes.inserted)

    # -- the first look ------------------------------------------------------------------------------------

    def _find_touched_files(self, candidates: Sequence[Add]) -> tuple[list[int], list[int]]:
        """The numbers of files that hold rows to be changed, and of those that hold only matched ones."""
        changed: set[int] = set()
        matched: set[int] = set()
        conditions = [
            self._on,
            *(clause.condition for clause in self._clauses if clause.condition is not None),
        ]
        columns = {name for condition in conditions for name in condition.list_columns_of(TARGET)}
        for piece in _combine_batches(read_files(self._job, candidates, columns)):
            files = piece.column(FILE_NUMBER)
            pairs = self._join_source(piece)
            self._is_matched = pc.or_(
                self._is_matched, make_mask(pc.unique(pairs.source_rows), self._source.num_rows)
            )
            matched.update(pc.unique(files.take(pairs.rows)).to_pylist())
            if not self._only_inserts:
                rows, _, _ = self._choose_clauses(piece, pairs)
                changed.update(pc.unique(files.take(rows)).to_pylist())
        if self._several and not self._deletes_all_matched:
            count = self._several
            raise InvalidRequest(
                f"{count} row{'s' if count > 1 else ''} of '{self._job.key}' would be changed by several "
                "rows of the source, so the result would be ambiguous; let the source have at most one row "
                f"for each, by the condition {self._on.text!r}",
                table=str(self._job.key),
                rows=count,
            )
        return sorted(changed), sorted(matched - changed)

    def _join_source(self, piece: Any) -> _RowPairs:
        """The pairs of rows of a piece and of the source for which the condition is true."""
        if not piece.num_rows or not self._source.num_rows:
            return _RowPairs(_make_empty_positions(), _make_empty_positions())
        if not self._keys:
            return self._try_all(piece)
        keys = self._key_table(TARGET, piece, [key for key, _ in self._keys], _ROW)
        names = [f"key{at}" for at in range(len(self._keys))]
        joined = keys.join(self._select_source_keys(keys), names, join_type="inner").combine_chunks()
        pairs = _RowPairs(*(_combine_chunks(joined.column(name)) for name in (_ROW, _SOURCE_ROW)))
        return pairs if self._rest is None else self._keep_true(piece, pairs, self._rest)

    def _select_source_keys(self, keys: Any) -> Any:
        """The keys of the source that lie among those of a piece: all, unless the table is in their order."""
        if self._keys[0][0].kind not in _BOUNDED:
            return self._source_keys
        bounds, values = pc.min_max(keys.column(0)), self._source_keys.column(0)
        is_near = pc.and_(pc.greater_equal(values, bounds["min"]), pc.less_equal(values, bounds["max"]))
        return self._source_keys.filter(is_near)

    def _try_all(self, piece: Any) -> _RowPairs:
        width = self._source.num_rows
        step = max(1, PAIRS_MAX // width)
        rows, source_rows = [], []
        for start in range(0, piece.num_rows, step):
            numbers = number_rows(min(step, piece.num_rows - start) * width)
            lines = pc.divide(numbers, width)
            tried = _RowPairs(pc.add(lines, start), pc.subtract(numbers, pc.multiply(lines, width)))
            matching = self._keep_true(piece, tried, self._on)
            rows.append(matching.rows)
            source_rows.append(matching.source_rows)
        return _RowPairs(pa.concat_arrays(rows), pa.concat_arrays(source_rows))

    def _keep_true(self, piece: Any, pairs: _RowPairs, condition: SqlExpression) -> _RowPairs:
        is_true = condition.is_true(self._make_frames(piece, pairs, condition))
        return _RowPairs(pairs.rows.filter(is_true), pairs.source_rows.filter(is_true))

    def _make_frames(self, piece: Any, pairs: _RowPairs, *expressions: SqlExpression) -> RowFrames:
        """The rows of pairs side by side, with the columns that expressions need."""
        target = {name for expression in expressions for name in expression.list_columns_of(TARGET)}
        source = {name for expression in expressions for name in expression.list_columns_of(SOURCE)}
        batches = {
            TARGET: piece.select(sorted(target)).take(pairs.rows),
            SOURCE: self._source.select(sorted(source)).take(pairs.source_rows),
        }
        return RowFrames(batches, len(pairs.rows))

    def _key_table(self, name: str, rows: Any, keys: Sequence[RowExpression], number: str) -> Any:
        """The values that are joined, and the numbers of the rows that have them."""
        frames = RowFrames({name: rows}, rows.num_rows)
        columns = {f"key{at}": _join_values(key, frames) for at, key in enumerate(keys)}
        return pa.table({**columns, number: number_rows(rows.num_rows)})

    # -- the second look -----------------------------------------------------------------------------------

    def _read_files(self, files: Sequence[Add]) -> Iterator[Any]:
        return _combine_batches(read_files(self._job, files))

    def _apply_clauses(self, rows: Any) -> RowOutcomes:
        """What becomes of the rows of a piece."""
        pairs = self._join_source(rows)
        changed, source_rows, numbers = self._choose_clauses(rows, pairs)
        deleted, updated, new = [], [], []
        for number, clause in enumerate(self._clauses):
            chosen = pc.equal(numbers, number)
            here = changed.filter(chosen)
            if clause.assignment is None:
                deleted.append(here)
            elif len(here):
                updated.append(here)
                assignment, sources = clause.assignment, source_rows.filter(chosen)
                batches = {TARGET: rows.select(assignment.list_needed_columns(TARGET)).take(here)}
                if clause.kind == MATCHED:
                    batches[SOURCE] = self._source.select(assignment.list_needed_columns(SOURCE)).take(
                        sources
                    )
                new.append(assignment.assign_columns(batches[TARGET], RowFrames(batches, len(here))))
        places = pa.concat_arrays([*updated, _make_empty_positions()])
        after = as_batch(new).take(pc.sort_indices(places)) if new else rows.slice(0, 0)
        gone = make_mask(pa.concat_arrays([*deleted, _make_empty_positions()]), rows.num_rows)
        return RowOutcomes(gone, make_mask(places, rows.num_rows), after)

    def _choose_clauses(self, piece: Any, pairs: _RowPairs) -> tuple[Any, Any, Any]:
        """The rows of a piece that a clause applies to, the source's row of each, and which clause it is."""
        frames = self._make_frames(piece, pairs, *self._clause_conditions(MATCHED))
        numbers = self._number_of_first_clause(MATCHED, frames)
        is_changed = pc.is_valid(numbers)
        rows, source_rows = pairs.rows.filter(is_changed), pairs.source_rows.filter(is_changed)
        numbers = numbers.filter(is_changed)
        if len(rows) > pc.count_distinct(rows).as_py():
            counts = pc.value_counts(rows).field("counts")
            self._several += pc.sum(pc.greater(counts, 1)).as_py()
            firsts = pc.index_in(pc.unique(rows), value_set=rows)
            rows, source_rows, numbers = (array.take(firsts) for array in (rows, source_rows, numbers))
        if not self._looks_everywhere:
            return rows, source_rows, numbers
        unmatched = find_true(pc.invert(make_mask(pairs.rows, piece.num_rows)))
        others = self._number_of_first_clause(
            NOT_MATCHED_BY_SOURCE, RowFrames({TARGET: piece.take(unmatched)}, len(unmatched))
        )
        chosen = pc.is_valid(others)
        unmatched, others = unmatched.filter(chosen), others.filter(chosen)
        return (
            pa.concat_arrays([rows, unmatched]),
            pa.concat_arrays([source_rows, pa.nulls(len(unmatched), pa.int64())]),
            pa.concat_arrays([numbers, others]),
        )

    def _clause_conditions(self, kind: str) -> list[SqlExpression]:
        return [
            clause.condition
            for clause in self._clauses
            if clause.kind == kind and clause.condition is not None
        ]

    def _number_of_first_clause(self, kind: str, frames: RowFrames) -> Any:
        """Of each row the number of the first clause of a kind that applies to it; null if none does."""
        open_rows = number_rows(frames.num_rows)
        places, numbers = [open_rows.slice(0, 0)], [pa.array([], pa.int8())]
        for number, clause in enumerate(self._clauses):
            if clause.kind != kind:
                continue
            is_true = pa.repeat(pa.scalar(True), len(open_rows))
            if clause.condition is not None:
                is_true = clause.condition.is_true(frames.take(open_rows))
            places.append(open_rows.filter(is_true))
            numbers.append(pa.repeat(pa.scalar(number, pa.int8()), len(places[-1])))
            open_rows = open_rows.filter(pc.invert(is_true))
        places.append(open_rows)
        numbers.append(pa.nulls(len(open_rows), pa.int8()))
        return pa.concat_arrays(numbers).take(pc.sort_indices(pa.concat_arrays(places)))

    # -- new rows ------------------------------------------------------------------------------------------

    def _insert_rows(self, changes: ChangedFiles, *, in_feed: bool) -> None:
        if not self._inserts:
            return
        rows = self._source.filter(pc.invert(self._is_matched))
        numbers = self._number_of_first_clause(NOT_MATCHED, RowFrames({SOURCE: rows}, rows.num_rows))
        for number, clause in enumerate(self._clauses):
            chosen = rows.filter(pc.fill_null(pc.equal(numbers, number), False))
            if clause.kind == NOT_MATCHED and clause.assignment is not None and chosen.num_rows:
                new = clause.assignment.assign_columns(None, RowFrames({SOURCE: chosen}, chosen.num_rows))
                changes.insert_rows(new, in_feed=in_feed)

    # -- what is asked for ---------------------------------------------------------------------------------

    def _parse_clause(self, clause: MergeClause) -> _ParsedClause:
        tables = {
            MATCHED: self._tables,
            NOT_MATCHED: {SOURCE: self._tables[SOURCE]},
            NOT_MATCHED_BY_SOURCE: {TARGET: self._tables[TARGET]},
        }[clause.kind]
        condition = None
        if clause.condition is not None:
            condition = parse_condition_text(clause.condition, tables)
        if clause.action == DELETE:
            return _ParsedClause(clause.kind, clause.action, condition, None)
        schema, is_insert = self._job.schema, clause.action == INSERT
        if clause.values is None:
            values = self._assign_source_values(is_insert=is_insert)
        else:
            values = parse_assignments(clause.values, tables, schema)
        if is_insert:
            self._check_given(values)
        assignment = RowAssignment(schema, values, is_insert=is_insert, numbers=self._numbers)
        return _ParsedClause(clause.kind, clause.action, condition, assignment)

    def _assign_source_values(self, *, is_insert: bool) -> AssignedValues:
        """The columns of the source; it may lack those that the table gives values to. Rows that are updated
        keep their numbers."""
        fields, source = self._job.schema.fields, self._tables[SOURCE]
        filled = [field.name for field in fields if has_generated_value(field)]
        names = [field.name for field in source.fields]
        check_source_columns(self._job.key, [field.name for field in fields], names, filled)
        return {
            (field.name,): SqlExpression(
                f"source.{field.name}", assign_value(ColumnValue(SOURCE, (column,)), field, field.name)
            )
            for field in fields
            if (column := source.field(field.name)) is not None
            and (is_insert or get_identity_column(field) is None)
        }

    def _check_given(self, values: AssignedValues) -> None:
        for field in self._job.schema.fields:
            is_needed = not field.nullable and not has_generated_value(field)
            if is_needed and not any(path[0] == field.name for path in values):
                raise InvalidRequest(
                    f"the column '{field.name}' of '{self._job.key}' is not nullable; give it a value in "
                    "the insert clause",
                    column=field.name,
                )

    def _find_needed(self) -> Predicate | None:
        """What must be true of a row of the table that a row of the source matches."""
        parts = [
            find_needed_predicate(self._on.root, TARGET),
            *map(self._bound_by_source, self._keys),
        ]
        needed = tuple(part for part in parts if part is not None)
        return And(needed) if len(needed) > 1 else needed[0] if needed else None

    def _bound_by_source(self, pair: tuple[RowExpression, RowExpression]) -> Predicate | None:
        """What the source's values say of a column of the table that they equal."""
        key, other = pair
        if not isinstance(key, ColumnValue) or key.kind not in _BOUNDED or not self._source.num_rows:
            return None
        values = other.evaluate(RowFrames({SOURCE: self._source}, self._source.num_rows))
        column = Column(key.fields)
        bounds = pc.min_max(values).as_py()
        if bounds["min"] is None:
            return None
        if key.fields[0].name in self._job.partition_columns:
            distinct = pc.unique(values).drop_null()
            if len(distinct) <= VALUES_MAX:
                return OneOf(column, tuple(distinct.to_pylist()))
        return And((ComparedValues(column, ">=", bounds["min"]), ComparedValues(column, "<=", bounds["max"])))


_BOUNDED: Final = frozenset({"byte", "short", "integer", "long", "string", "date"})
"""Types of columns that files are unmatched out by where the source's values lie elsewhere."""


def _condition_text(on: str | Sequence[str], tables: Mapping[str, StructType]) -> str:
    """A condition, or the columns that are equal in both."""
    if isinstance(on, str):
        return on
    if not on:
        raise InvalidRequest("the merge condition compares no column of the table with the source")
    for name in on:
        find_path(name, tables[TARGET])
    quoted = ["`" + name.replace("`", "``") + "`" for name in on]
    return " and ".join(f"target.{name} = source.{name}" for name in quoted)


def _split_condition(
    on: SqlExpression,
) -> tuple[list[tuple[RowExpression, RowExpression]], SqlExpression | None]:
    """The equalities of a condition, each as the target's side and the source's; and what else it says."""
    keys: list[tuple[RowExpression, RowExpression]] = []
    rest: list[RowExpression] = []
    for part in list_joined_parts(on.root):
        sides = _split_equality(part)
        if sides is None:
            rest.append(part)
        else:
            keys.append(sides)
    return keys, SqlExpression(on.text, join_conditions(rest)) if rest else None


def _split_equality(part: RowExpression) -> tuple[RowExpression, RowExpression] | None:
    if not isinstance(part, ValueComparison) or part.operator != "=" or part.may_fail:
        return None
    first, second = (SqlExpression("", side).tables() for side in (part.first, part.second))
    if first == {TARGET} and second == {SOURCE}:
        return part.first, part.second
    return (part.second, part.first) if first == {SOURCE} and second == {TARGET} else None


def _join_values(key: RowExpression, frames: RowFrames) -> Any:
    """Values as Arrow's join compares them: it takes bits for equal, of which zero and NaN have several."""
    values = key.evaluate(frames)
    if key.kind not in REAL:
        return values
    zero, nan = pa.scalar(0.0, values.type), pa.scalar(float("nan"), values.type)
    return pc.if_else(pc.is_nan(values), nan, pc.if_else(pc.equal(values, zero), zero, values))


def _combine_batches(batches: Iterable[Any]) -> Iterator[Any]:
    """Batches put together, up to a size."""
    held: list[Any] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= PIECE_ROWS or size >= PIECE_BYTES:
            yield as_batch(held)
            held, rows, size = [], 0, 0
    if held:
        yield as_batch(held)


def _make_empty_positions() -> Any:
    return pa.array([], pa.int64())


def _combine_chunks(column: Any) -> Any:
    return pa.concat_arrays(column.chunks) if column.num_chunks else _make_empty_positions()
