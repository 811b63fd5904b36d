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


def writing(
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

    def write(batches: Batches) -> Batches:
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

        def fitted() -> Batches:
            batch = first
            try:
                while batch is not None:
                    yield as_rows_of(batch, schema, refusal)
                    batch = next(batches, None)
            except BaseException as problem:
                problems.append(problem)
                raise

        target = pickle.loads(dataset) if isinstance(dataset, bytes) else dataset
        rows = pa.RecordBatchReader.from_batches(schema, fitted())
        try:
            found = write_fragments(rows, target, mode=mode, **options)
        except BaseException:
            # Lance would tell of it in words of its own, with a trace.
            if problems:
                raise problems[0] from None
            raise
        context = TaskContext.get()
        assert context is not None
        message = {
            "partition": context.partitionId(),
            "attempt": context.taskAttemptId(),
            "fragments": [one.to_json() for one in found],
        }
        if tell is not None:
            tell([file.path for one in found for file in one.files])
        yield pa.RecordBatch.from_pydict({"message": [json.dumps(message)]})

    return write


def scanning(
    dataset: bytes, fragments: list[int], schema: Any, condition: str | None
) -> Callable[[Batches], Batches]:
    """A function that reads fragments of a table as it was opened: those whose places its rows name."""

    def scan(batches: Batches) -> Batches:
        import pickle

        import pyarrow as pa

        table: Any = None
        for batch in batches:
            for at in batch.column(0).to_pylist():
                # A version that nobody else sees yet has its indices where only the lake's own clients look.
                table = table if table is not None else pickle.loads(dataset)
                scanner = table.get_fragment(fragments[at]).scanner(
                    columns=schema.names,
                    filter=condition,
                    use_scalar_index=False,
                    blob_handling="all_binary",
                )
                for rows in scanner.to_batches():
                    if rows.num_rows:
                        yield pa.RecordBatch.from_arrays(_readable(rows, schema), schema=schema)

    return scan


def _readable(rows: Any, schema: Any) -> list[Any]:
    """Columns in the types that Spark reads. Of times only what is finer than it can tell is lost."""
    return [one.cast(to.type, safe=False) for one, to in zip(rows.columns, schema, strict=True)]


def as_rows_of(batch: Any, schema: Any, refusal: str) -> Any:
    """A batch with the types of a table; an error for the driver if a value cannot be one of the table's."""
    import pyarrow as pa

    arrays = []
    for array, field in zip(batch.columns, schema, strict=True):
        if array.null_count and not field.nullable:
            raise ValueError(_told(refusal, f"'{field.name}' is null in a row, and never is in the table"))
        try:
            arrays.append(_aligned(_cast(array, field.type)))
        except pa.ArrowInvalid as problem:
            why = str(problem).partition("\n")[0]
            if pa.types.is_fixed_size_list(field.type):
                why = f"a vector of '{field.name}' has not {field.type.list_size} numbers"
            raise ValueError(_told(refusal, f"'{field.name}' is {field.type} in the table: {why}")) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: Any, kind: Any) -> Any:
    import pyarrow as pa

    if array.type == kind:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if pa.types.is_dictionary(kind):
        return array.cast(kind.value_type).dictionary_encode().cast(kind)
    return array.cast(kind)


def _aligned(array: Any) -> Any:
    """An array whose numbers lie where Lance can read them. Spark's decimals, of 16 bytes, need not."""
    import pyarrow as pa

    return pa.concat_arrays([array, array.slice(0, 0)]) if "decimal" in str(array.type) else array


def _told(refusal: str, message: str) -> str:
    return refusal.replace("{}", json.dumps(message)[1:-1], 1)
