"""Rows of a table of files: one file after the other, each as Arrow's readers of its format read it.

How they are to be read is what the table's last job said; what it did not say is seen from the first file.
Columns that only a path tells, as in ``day=1/``, are filled in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol
from urllib.parse import unquote

from penstock.errors import InvalidRequest
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.formats.files.files import Layout
    from penstock.lake.files.answers import FileEntry, TableLayout

FORMATS: Final = ("parquet", "csv", "json", "orc", "arrow", "feather")
"""Those that can be read."""
_PARTITION: Final = re.compile(r"([^/=]+)=([^/]*)/")
_WHOLE: Final = re.compile(r"-?\d{1,18}")
_NONE: Final = "__HIVE_DEFAULT_PARTITION__"


class ManyFiles(Protocol):
    """The files of a table, in one state."""

    def walk(self, folder: str = "") -> Iterator[FileEntry]: ...

    def open(self, path: str) -> BinaryIO: ...


class FileRows:
    """Reads a table of files."""

    def __init__(self, key: Key, files: ManyFiles, layout: Layout | TableLayout) -> None:
        self._key, self._files, self._layout = key, files, layout

    def begin(self) -> Any:
        """The rows as a ``pyarrow.RecordBatchReader``; ``InvalidRequest`` if their format cannot be read."""
        from penstock.formats.delta.rows.arrow_types import pa

        paths = [one.path for one in self._files.walk() if not _is_hidden(one.path)]
        kind = self._kind(paths)
        schema = self._schema(paths, kind)
        return pa.RecordBatchReader.from_batches(schema, self._batches(paths, kind, schema))

    def _kind(self, paths: list[str]) -> str:
        kind = self._layout.format or (paths[0].rpartition(".")[2].lower() if paths else "")
        if kind not in FORMATS and paths:
            raise InvalidRequest(
                f"'{self._key}' has files of a format that is not read here ('{kind}'): {', '.join(FORMATS)} "
                "are",
                table=str(self._key),
            )
        return kind

    def _schema(self, paths: list[str], kind: str) -> Any:
        """All columns, those of paths last if only they tell of them."""
        from penstock.formats.delta.rows.arrow_types import pa

        if self._layout.schema:
            from penstock.formats.delta.protocol.schema import parse_schema
            from penstock.formats.delta.rows.arrow_types import arrow_schema

            return arrow_schema(parse_schema(self._layout.schema).fields)
        told = [_told(path) for path in paths]
        if not paths:
            return pa.schema([])
        inside = self._fragment(paths[0], kind, None).physical_schema
        names = dict.fromkeys(name for one in told for name in one if name not in inside.names)
        values = {name: [one.get(name) for one in told] for name in names}
        return pa.schema([*inside, *((name, _type(found)) for name, found in values.items())])

    def _batches(self, paths: list[str], kind: str, schema: Any) -> Iterator[Any]:
        for path in paths:
            yield from self._fragment(path, kind, schema).to_batches(schema=schema)

    def _fragment(self, path: str, kind: str, schema: Any) -> Any:
        from penstock.formats.delta.rows.arrow_types import pa

        dataset = import_module("pyarrow.dataset")

        where = None
        for name, value in _told(path).items():
            if schema is not None and name in schema.names:
                field = dataset.field(name)
                typed = None if value is None else pa.scalar(value).cast(schema.field(name).type)
                is_so = field.is_null() if typed is None else field == typed
                where = is_so if where is None else where & is_so
        file = pa.PythonFile(self._files.open(path), mode="r")
        return self._reader(kind, schema).make_fragment(file, partition_expression=where)

    def _reader(self, kind: str, schema: Any) -> Any:
        csv, dataset = import_module("pyarrow.csv"), import_module("pyarrow.dataset")

        if kind != "csv":
            of = {"parquet": "ParquetFileFormat", "json": "JsonFileFormat", "orc": "OrcFileFormat"}
            return getattr(dataset, of.get(kind, "IpcFileFormat"))()
        options = {name.lower(): value for name, value in self._layout.options.items()}
        parse = csv.ParseOptions(
            delimiter=options.get("sep", options.get("delimiter", ",")),
            quote_char=options.get("quote", '"') or False,
        )
        read = csv.ReadOptions()
        if self._layout.format and options.get("header", "false").lower() != "true" and schema is not None:
            own = [name for name in schema.names if name not in self._layout.partition_by]
            read = csv.ReadOptions(column_names=own)
        convert = csv.ConvertOptions(strings_can_be_null=True)
        return dataset.CsvFileFormat(parse_options=parse, read_options=read, convert_options=convert)


def _is_hidden(path: str) -> bool:
    """Whether readers of folders pass a file over: a marker, or something temporary."""
    return any(part[:1] in ("_", ".") and "=" not in part for part in path.split("/"))


def _told(path: str) -> Mapping[str, str | None]:
    """The columns that a path tells, with their values."""
    found = {unquote(one[1]): unquote(one[2]) for one in _PARTITION.finditer(path)}
    return {name: None if value == _NONE else value for name, value in found.items()}


def _type(values: list[str | None]) -> Any:
    from penstock.formats.delta.rows.arrow_types import pa

    are_whole = all(_WHOLE.fullmatch(one) for one in values if one is not None)
    return pa.int64() if are_whole else pa.string()
