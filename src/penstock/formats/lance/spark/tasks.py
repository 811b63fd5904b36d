"""What tasks do with a Lance table, on whatever machine: write fragments of it, and scan some.

Executors need pylance and their own access to the storage. They need nothing of Penstock: this module travels
with the job, so it imports nothing of the package. Lance is imported in the task, for it does not survive
a fork.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

Batches = Iterator[Any]


def make_write_task(
    dataset: bytes | str,
    schema: Any,
    mode: str,
    options: dict[str, Any],
    refusal: str,
    tell: Callable[[list[str]], None] | None,
) -> Callable[[Batches], Batches]:
    """A function that writes a task's rows, and returns one message: which fragments they are.

    ``dataset`` is the table as the driver opened it, or the folder of one that is new. ``refusal`` is what an
    error must look like that the driver understands, with its message where ``{}`` is. ``tell`` hands on the
    names of files by another way, by which those of finished tasks reach the driver also if the job fails.
    """

    def write_batches(batches: Batches) -> Batches:
        import pickle

        import pyarrow as pa  # type: ignore[import-untyped]
        from lance.fragment import write_fragments
        from pyspark import TaskContext

        problems: list[BaseException] = []
        first = next(batches, None)
        while first is not None and first.num_rows == 0:
            first = next(batches, None)
        if first is None:
            return

        def fit_batches() -> Batches:
            batch = first
            try:
                while batch is not None:
                    yield convert_rows(batch, schema, refusal)
                    batch = next(batches, None)
            except BaseException as problem:
                problems.append(problem)
                raise

        target = pickle.loads(dataset) if isinstance(dataset, bytes) else dataset
        rows = pa.RecordBatchReader.from_batches(schema, fit_batches())
        try:
            fragments = write_fragments(rows, target, mode=mode, **options)
        except BaseException:
            # Lance would tell of it in words of its own, with a trace.
            if problems:
                raise problems[0] from None
            raise
        context = TaskContext.get()
        assert context is not None
        message = {
            "partition": context.partitionId(),
            "fragments": [fragment.to_json() for fragment in fragments],
        }
        if tell is not None:
            tell([file.path for fragment in fragments for file in fragment.files])
        yield pa.RecordBatch.from_pydict({"message": [json.dumps(message)]})

    return write_batches


def make_scan_task(
    dataset: bytes, fragments: list[int], schema: Any, condition: str | None, gone: str
) -> Callable[[Batches], Batches]:
    """A function that reads fragments of a table as it was opened: those whose places its rows name.

    ``gone`` is what to say if their files are not there any more.
    """

    def scan_fragments(batches: Batches) -> Batches:
        import pickle

        import pyarrow as pa

        def read_fragment(fragment: Any) -> Batches:
            # A version that nobody else sees yet has its indices where only the lake's own clients look.
            scanner = fragment.scanner(
                columns=schema.names, filter=condition, use_scalar_index=False, blob_handling="all_binary"
            )
            try:
                yield from scanner.to_batches()
            except (OSError, ValueError) as problem:
                if "not found: " not in str(problem).lower():
                    raise
                raise FileNotFoundError(gone) from None

        table: Any = None
        for batch in batches:
            for at in batch.column(0).to_pylist():
                table = table if table is not None else pickle.loads(dataset)
                for rows in read_fragment(table.get_fragment(fragments[at])):
                    if rows.num_rows:
                        yield pa.RecordBatch.from_arrays(_make_readable_columns(rows, schema), schema=schema)

    return scan_fragments


def _make_readable_columns(rows: Any, schema: Any) -> list[Any]:
    """Columns in the types that Spark reads. Times lose what is finer than Spark's precision."""
    return [array.cast(to.type, safe=False) for array, to in zip(rows.columns, schema, strict=True)]


def convert_rows(batch: Any, schema: Any, refusal: str) -> Any:
    """A batch with the types of a table; an error for the driver if a value cannot be one of the table's."""
    import pyarrow as pa

    arrays = []
    for array, field in zip(batch.columns, schema, strict=True):
        if array.null_count and not field.nullable:
            raise ValueError(
                _write_refusal_text(
                    refusal, f"'{field.name}' is null in a row, but is not nullable in the table"
                )
            )
        try:
            converted = _cast_array(array, field.type)
        except pa.ArrowInvalid as problem:
            why = str(problem).partition("\n")[0]
            if pa.types.is_fixed_size_list(field.type):
                why = f"a vector of '{field.name}' does not have {field.type.list_size} numbers"
            raise ValueError(
                _write_refusal_text(refusal, f"'{field.name}' is {field.type} in the table: {why}")
            ) from None
        if "halffloat" in str(field.type) and _count_infinite(converted) > _count_infinite(array):
            why = f"a number of '{field.name}' is too large for the 16-bit type of the column"
            raise ValueError(_write_refusal_text(refusal, why))
        arrays.append(_align_decimals(converted))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast_array(array: Any, kind: Any) -> Any:
    import pyarrow as pa

    if array.type == kind:
        return array
    if array.null_count == len(array):
        return pa.nulls(len(array), kind)  # of vectors that are all null, Arrow's cast ends the process
    if pa.types.is_dictionary(kind):
        return array.cast(kind.value_type).dictionary_encode().cast(kind)
    if "fixed_size_list" in str(kind) and not pa.types.is_fixed_size_list(kind):
        return _cast_nested_values(array, kind)
    return array.cast(kind)


def _cast_nested_values(array: Any, kind: Any) -> Any:
    """Values that have vectors somewhere inside."""
    import pyarrow as pa

    array = pa.concat_arrays([array, array.slice(0, 0)])  # what is a slice has its parts elsewhere
    nothing = array.is_null()
    if pa.types.is_struct(kind):
        parts = [_cast_array(array.field(at), field.type) for at, field in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=[*kind], mask=nothing)
    if pa.types.is_map(kind):
        keys, items = _cast_array(array.keys, kind.key_type), _cast_array(array.items, kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=nothing)
    values, made = _cast_array(array.values, kind.value_type), pa.ListArray
    offsets = array.offsets
    if pa.types.is_large_list(kind):
        made, offsets = pa.LargeListArray, offsets.cast(pa.int64())
    return made.from_arrays(offsets, values, type=kind, mask=nothing)


def _count_infinite(array: Any) -> int:
    """How many numbers are infinite, at every depth."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    kind = array.type
    if pa.types.is_struct(kind):
        return sum(map(_count_infinite, array.flatten()))
    if pa.types.is_map(kind):
        return _count_infinite(array.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _count_infinite(array.flatten())
    return int(pc.sum(pc.is_inf(array)).as_py() or 0) if pa.types.is_floating(kind) else 0


def _align_decimals(array: Any) -> Any:
    """Copy decimals so that their 16-byte values are aligned, as Lance needs; Spark's may not be."""
    import pyarrow as pa

    return pa.concat_arrays([array, array.slice(0, 0)]) if "decimal" in str(array.type) else array


def _write_refusal_text(refusal: str, message: str) -> str:
    return refusal.replace("{}", json.dumps(message)[1:-1], 1)
