"""Scans without Penstock's jar, and over Spark Connect: the files are named in a manifest that Spark reads.

The manifest is of the kind that Spark's own streaming file sink leaves behind, so Spark takes the files from
it and lists no others. It lies below the place of the files, in a folder named by its content, and is used
again for the same files. What is the same for all rows of a file comes by a join with the file's address:
Spark reads files then that a condition on partition columns alone could have left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from penstock.errors import InvalidRequest, OutcomeUnknown, Unavailable
from penstock.formats.rows.arrow_types import find_arrow_type, pa
from penstock.formats.rows.partition_values import Value
from penstock.model.clock import now_us
from penstock.spark.addresses import spark_address
from penstock.spark.schemas import quote_name
from penstock.storage.places import SCRATCH, Place

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

    from penstock.lake.scan_files import ScanFile
    from penstock.spark.scan.frames import ParseValue, ReadSettings

FOLDER: Final = f"{SCRATCH}/reads"
"""Below the table's root, or the warehouse's. Cleaning up removes what is older than a day."""
FRESH_S: Final = 3600
"""An older manifest is written again, so that it is there for as long as whoever reads needs it."""

_MANIFEST: Final = "_spark_metadata/0"
_PATH: Final = "__penstock_path"
_VALUE: Final = "__penstock_value_"
_TIMES_SETTING: Final = "spark.sql.timeType.enabled"
_BLOCK_BYTES: Final = 32 * 1024 * 1024
_ABSENT: Final = "Spark uses another name for a file than its manifest; nothing of the file was read"


def scan_files(
    spark: SparkSession,
    place: Place,
    files: Sequence[ScanFile],
    columns: StructType | None,
    constants: StructType,
    how: ReadSettings,
    parse_value: ParseValue | None = None,
) -> DataFrame:
    """As ``frames.frame``. ``Unavailable``, or ``Denied``, if the manifest cannot be put beside the table.

    ``InvalidRequest`` if reading takes a setting of the session that it has not.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    _check_settings(spark, place, how.options)
    root = spark_address(place.url)
    once = {file.name: file for file in files}
    folder = _put_manifest(place, _format_lines(root, once.values()))
    manifest_files = _read_manifest_files(spark, f"{root}/{folder}", columns, how)
    if not constants.fields:
        once_more = [file for file in files if once.pop(file.name, None) is None]
        if not once_more:
            return manifest_files
        return manifest_files.union(
            scan_files(spark, place, once_more, manifest_files.schema, constants, how, parse_value)
        )
    spelled = [(path, file.values) for file in files for path in _address_spellings(file.make_address(root))]
    table = None if parse_value is None else _constants_table(place, constants.fields, spelled, parse_value)
    lookup = _constants_by_address(spark, constants.fields, spelled, table, how.zone)
    # What Spark tells is percent-encoded, by rules that are Java's own; nobody but a form means ' ' by '+'.
    path = F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B")))
    joined = manifest_files.join(F.broadcast(lookup), path == F.col(_PATH), "left")
    return joined.select(*_shown_columns(spark, manifest_files.columns, constants.fields))


def _shown_columns(
    spark: SparkSession, columns: Sequence[str], constants: Sequence[StructField]
) -> Iterator[Column]:
    """The columns of the files, then the constants. One that is both has the constant, in its place."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    is_exact = spark.conf.get("spark.sql.caseSensitive") == "true"
    rest = {field.name if is_exact else field.name.lower(): (at, field) for at, field in enumerate(constants)}
    for name in columns:
        constant = rest.pop(name if is_exact else name.lower(), None)
        yield F.col(quote_name(name)) if constant is None else _require_column(*constant)
    for at, field in rest.values():
        yield _require_column(at, field)


def _constants_by_address(
    spark: SparkSession,
    constants: Sequence[StructField],
    spelled: Sequence[tuple[str, tuple[str | None, ...]]],
    parsed: Any,
    zone: str,
) -> DataFrame:
    """The constants of each file, beside its address, under names that no file has for a column.

    ``parsed`` has their values, as an Arrow table; without it they are what Spark casts the texts to.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark
    from pyspark.sql.types import StringType, StructField, StructType

    paths = pa.array([path for path, _ in spelled], pa.string())
    if parsed is not None:
        table = parsed
        fields = [StructField(_VALUE + str(at), field.dataType) for at, field in enumerate(constants)]
    else:
        texts = [pa.array([values[at] for _, values in spelled], pa.string()) for at in range(len(constants))]
        fields = [StructField(_VALUE + str(at), StringType()) for at in range(len(constants))]
        table = pa.table(texts, [field.name for field in fields])
    table = table.rename_columns([field.name for field in fields]).add_column(0, _PATH, paths)
    lookup = spark.createDataFrame(table, StructType([StructField(_PATH, StringType()), *fields]))
    if parsed is not None:
        return lookup
    _check_castable(spark, constants, zone)
    cast = [_cast_text(field.name, constant) for field, constant in zip(fields, constants, strict=True)]
    return lookup.select(F.col(_PATH), *cast)


def _cast_text(name: str, field: StructField) -> Column:
    """What a text stands for; an error if it is no value, also in sessions where Spark would make it null."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    kind = field.dataType
    if kind.typeName() == "void":
        return F.lit(None).alias(name)
    text, value = F.col(name), F.col(name).try_cast(kind)
    message = F.concat(
        F.lit(
            f"the partition column '{field.name}' has the type {kind.simpleString()}, which cannot store '"
        ),
        text,
    )
    wrong = F.raise_error(F.concat(message, F.lit("'"))).cast(kind)
    return F.when(text.isNotNull() & value.isNull(), wrong).otherwise(value).alias(name)


def _check_castable(spark: SparkSession, constants: Iterable[StructField], zone: str) -> None:
    """Here it is the session that casts values: in its own time zone, and to the types that it allows."""
    kinds = {constant.dataType.typeName() for constant in constants}
    if "time" in kinds and spark.conf.get(_TIMES_SETTING) != "true":
        raise InvalidRequest(
            f"without Penstock's jar, partition columns of the type time need {_TIMES_SETTING}=true in "
            "the session; set it, or give a 'schema' in which they are strings"
        )
    if "timestamp" in kinds and zone != spark.conf.get("spark.sql.session.timeZone"):
        raise InvalidRequest(
            "without Penstock's jar, timestamps in partition columns are read in the session's time "
            f"zone: set spark.sql.session.timeZone to {zone}, and leave the option timeZone out"
        )


def _read_manifest_files(
    spark: SparkSession, folder: str, columns: StructType | None, how: ReadSettings
) -> DataFrame:
    """The rows of the files that the manifest in a folder names; an error if it is there no more.

    Over Spark Connect a plan is analysed each time it is used, and by then the manifest may be cleaned up. To
    Spark a folder without one is a table without rows. So the plan also names the manifest as a file to be
    read: Spark does not analyse that once it is gone, and reads nothing of it.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    reader = spark.read if columns is None else spark.read.schema(columns)
    frame = reader.format(how.format).options(**how.options, recursiveFileLookup="true").load(folder)
    # The right side is looked at last: what it finds was there when the left one was read.
    manifest = spark.read.text(f"{folder}/{_MANIFEST}").where(F.lit(False))
    return frame.join(manifest, F.lit(True), "left_anti")


def _check_settings(spark: SparkSession, place: Place, options: Mapping[str, str]) -> None:
    """Spark takes some options of a file's reader from the session alone, and reads nulls without them."""
    for name, value in options.items():
        if name.startswith("spark.") and spark.conf.get(name, None) != value:
            raise InvalidRequest(
                f"{place.url} is read by the ids of columns: set {name} to {value} in this session, or start "
                "it with Penstock's jar",
                location=place.url,
            )


def _require_column(at: int, field: StructField) -> Column:
    """The value of a column for a file; an error, not null, if Spark uses another name for the file."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    absent = F.raise_error(F.lit(_ABSENT)).cast(field.dataType)
    return F.when(F.col(_PATH).isNull(), absent).otherwise(F.col(_VALUE + str(at))).alias(field.name)


def _constants_table(
    place: Place,
    fields: Sequence[StructField],
    spelled: Sequence[tuple[str, tuple[str | None, ...]]],
    parse_value: ParseValue,
) -> Any:
    """Constants as an Arrow table of what they stand for."""
    arrays = {}
    for at, field in enumerate(fields):
        kind = str(field.dataType.jsonValue())
        values = [_convert_value(kind, parse_value(place, kind, texts[at])) for _, texts in spelled]
        arrays[field.name] = pa.array(values, find_arrow_type(kind, field.name))
    return pa.table(arrays)


def _convert_value(kind: str, value: Value) -> Any:
    return value.encode() if kind == "binary" and isinstance(value, str) else value


def _put_manifest(place: Place, lines: Iterable[bytes]) -> str:
    """Have a manifest beside the table, and return the name of its folder there."""
    data = b"\n".join(lines)
    folder = f"{FOLDER}/{hashlib.sha256(data).hexdigest()[:32]}"
    name = f"{folder}/{_MANIFEST}"
    entry = place.look(name)
    if entry is None or entry.size != len(data) or entry.modified_us < now_us() - FRESH_S * 1_000_000:
        try:
            place.put(name, data)
        except OutcomeUnknown as problem:
            if place.size(name) != len(data):
                raise Unavailable(f"{problem.message}; nothing was read", part="storage") from None
    return folder


def _format_lines(root: str, files: Iterable[ScanFile]) -> Iterable[bytes]:
    """Files as Spark's file sink writes them down."""
    yield b"v1"
    for file in files:
        scheme, _, path = file.make_address(root).partition("://")
        status = {
            "path": f"{scheme}://{quote(path)}",
            "size": file.size,
            "isDir": False,
            "modificationTime": file.modified_ms,
            "blockReplication": 1,
            "blockSize": _BLOCK_BYTES,
            "action": "add",
        }
        yield msgspec.json.encode(status)


def _address_spellings(address: str) -> tuple[str, ...]:
    """How Spark may spell the address of a file; its releases do not agree on those of local ones."""
    local = address.removeprefix("file://")
    return (address,) if local == address else (f"file:{local}", f"file://{local}")
