"""How rows are to be written to a Lance table: what a caller may ask for, and what of it goes together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.lake.call import CommitDescription
from penstock.lake.write_jobs import SaveMode, check_properties
from penstock.model.keys import Key
from penstock.spark.job.applications import get_application
from penstock.spark.requests import WriteRequest
from penstock.spark.write_arguments import choose_job_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.formats.lance.spark.output import LanceOutput

LANCE: Final = "lance"
VECTOR: Final = "vector."
"""How options begin that say how many numbers the vectors of a column have."""
_NUMBERS: Final = ("max_rows_per_file", "max_bytes_per_file")
STORAGE_VERSION: Final = "data_storage_version"


class LanceWriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How rows are to be written."""

    mode: SaveMode
    overwrite_schema: bool
    vectors: dict[str, int]
    """How many numbers the vectors of a column have, where a table is created."""
    options: dict[str, Any]
    """For Lance's writer, in the tasks."""
    create: bool
    job: str
    """32 hexadecimal digits."""
    is_named: bool
    """Whether it may have been tried before."""
    message: str | None
    author: str | None
    properties: dict[str, str]
    """Of the commit."""


def parse_write_options(request: WriteRequest) -> LanceWriteOptions:
    """What a caller asks for; ``InvalidRequest`` for what does not go together, or is not the caller's to
    say."""
    overwrite_schema = request.extra.get("overwrite_schema", False)
    if overwrite_schema and request.mode is not SaveMode.OVERWRITE:
        raise InvalidRequest(
            f"'overwrite_schema' can only be used with mode='overwrite', not with '{request.mode}'"
        )
    check_properties(request.properties)
    is_named = request.extra.get("job_id") is not None or request.idempotency_key is not None
    return LanceWriteOptions(
        mode=request.mode,
        overwrite_schema=overwrite_schema,
        vectors=_parse_vector_columns(request.options),
        options=dict(_list_writer_options(request.options)),
        create=request.create,
        job=choose_job_id(request),
        is_named=is_named,
        message=request.message,
        author=request.author,
        properties=request.properties,
    )


def check_storage_version(order: LanceWriteOptions) -> None:
    """``InvalidRequest`` for a version of the format of data files that Lance has not, by its own word."""
    version = order.options.get(STORAGE_VERSION)
    if version is None:
        return
    import lance

    from penstock.formats.rows.arrow_types import pa

    none = pa.table({"id": pa.array([], pa.int64())})
    try:
        lance.write_dataset(none, "memory://", data_storage_version=version)
    except (OSError, ValueError):
        raise InvalidRequest(
            f"the option '{STORAGE_VERSION}' is {version!r}, which Lance {lance.__version__} does not support"
        ) from None


def _parse_vector_columns(options: Mapping[str, str]) -> dict[str, int]:
    """Columns of vectors, as options name them; ``InvalidRequest`` for lengths that cannot be."""
    vectors = {}
    for name, value in options.items():
        if name.startswith(VECTOR):
            vectors[name.removeprefix(VECTOR)] = _parse_number(name, value)
    return vectors


def _list_writer_options(options: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """The options for Lance's writer; ``InvalidRequest`` for those that it has not."""
    for name, value in options.items():
        if name in _NUMBERS:
            yield name, _parse_number(name, value)
        elif name == STORAGE_VERSION:
            yield name, value
        elif not name.startswith(VECTOR):
            known_options = ", ".join((*_NUMBERS, STORAGE_VERSION, f"{VECTOR}<column>"))
            raise InvalidRequest(
                f"'{name}' is not an option of a write to a Lance table; the options are {known_options}"
            )


def _parse_number(name: str, value: str) -> int:
    if not value.isdecimal() or not 0 < int(value) < 2**63:
        raise InvalidRequest(f"the option '{name}' must be a whole number above zero, got {value!r}")
    return int(value)


# -- what is told ------------------------------------------------------------------------------------------


def make_commit_properties(
    spark: SparkSession, key: Key, order: LanceWriteOptions, output: LanceOutput
) -> CommitDescription:
    """Message and properties of the job's commit: job id, mode, format, counts."""
    properties: dict[str, tuple[str, ...]] = {name: (value,) for name, value in order.properties.items()}
    properties |= {
        "penstock.job": (order.job,),
        "mode": (order.mode.value,),
        "format": (LANCE,),
        "files": (str(len(output.files)),),
        "rows": (str(output.rows),),
    }
    application = get_application(spark)
    for name, value in (
        ("spark.application", application.id),
        ("spark.application.name", application.name),
    ):
        if value:
            properties[name] = (value,)
    verb = "overwrite" if order.mode is SaveMode.OVERWRITE else "append"
    rows = f"{output.rows:,} row{'' if output.rows == 1 else 's'}"
    made_up = f"{verb} {key} with {rows}" if verb == "overwrite" else f"append {rows} to {key}"
    return CommitDescription(
        message=order.message if order.message is not None else made_up,
        authors=None if order.author is None else tuple(filter(None, (order.author,))),
        properties=properties,
    )


def make_transaction_properties(order: LanceWriteOptions) -> dict[str, str]:
    """What the table's own history tells of a version: who made it, as which job."""
    return {"penstock.job": order.job, "penstock.writer": f"penstock.spark {order.mode}"}
