"""Rows of a table of files: one file after the other, each as Arrow's readers of its format read it.

How they are to be read is what the table's last job said; what it did not say is seen from the files: their
formats from their names, and from all of them together which columns there are. Columns that only a path
tells, as in ``day=1/``, are filled in. Empty files have no rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol
from urllib.parse import unquote

from penstock.errors import InvalidRequest
from penstock.formats.files.lake.data_files import NO_VALUE, is_data
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.formats.files.files import Layout
    from penstock.formats.files.lake.answers import FileEntry, TableLayout

FORMATS: Final = ("parquet", "csv", "json", "orc", "arrow", "feather")
"""Those that can be read."""
_PARTITION: Final = re.compile(r"([^/=]+)=([^/]*)/")
_WHOLE: Final = re.compile(r"-?\d{1,18}")


class ManyFiles(Protocol):
    """The files of a table, in one state."""

    def walk(self, folder: str = "") -> Iterator[FileEntry]: ...

    def open(self, path: str) -> BinaryIO: ...


class FileRows:
    """Reads a table of files, in one state."""

    def __init__(self, key: Key, files: ManyFiles, layout: Layout | TableLayout) -> None:
        self._key, self._files, self._layout = key, files, layout

    def begin(self) -> Any:
        """The rows as a ``pyarrow.RecordBatchReader``; without columns if there is neither a file nor a word
        of them. ``InvalidRequest`` if a file cannot be read, or files do not go together."""
        from penstock.formats.rows.arrow_types import pa

        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    @cached_property
    def _paths(self) -> list[str]:
        return [one.path for one in self._files.walk() if one.size and is_data(one.path)]

    def _kind(self, path: str) -> str:
        kind = self._layout.format or path.rpartition("/")[2].rpartition(".")[2].lower()
        if kind not in FORMATS:
            raise InvalidRequest(
                f"'{self._key}' has files of a format that is not read here ('{kind}'), such as {path}: "
                f"{', '.join(FORMATS)} are",
                table=str(self._key),
                path=path,
            )
        return kind

    @cached_property
    def _schema(self) -> Any:
        """All columns, those of paths last if only they tell of them."""
        from penstock.formats.rows.arrow_types import pa

        if self._layout.schema:
            from penstock.formats.rows.arrow_types import arrow_schema
            from penstock.formats.rows.schema import parse_schema

            return arrow_schema(parse_schema(self._layout.schema).fields)
        inside, told = self._inside(), [_told(path) for path in self._paths]
        names = dict.fromkeys(name for one in told for name in one if name not in inside.names)
        values = {name: [one.get(name) for one in told] for name in names}
        return pa.schema([*inside, *((name, _type(found)) for name, found in values.items())])

    def _inside(self) -> Any:
        """The columns that are in the files, each of a type that holds the values of all of them."""
        from penstock.formats.rows.arrow_types import pa

        found = []
        for path in self._paths:
            with self._telling(path):
                found.append(self._fragment(path, None).physical_schema.remove_metadata())
        try:
            return pa.unify_schemas([pa.schema([]), *found], promote_options="permissive")
        except (pa.ArrowException, ValueError) as problem:
            raise InvalidRequest(
                f"the files of '{self._key}' do not go together: {_said(problem)}", table=str(self._key)
            ) from None

    def _batches(self) -> Iterator[Any]:
        for path in self._paths:
            with self._telling(path):
                yield from self._fragment(path, self._schema).to_batches(schema=self._schema)

    @contextmanager
    def _telling(self, path: str) -> Iterator[None]:
        """What Arrow says of a file that it cannot read, with the file's name."""
        from penstock.formats.rows.arrow_types import pa

        try:
            yield
        except pa.ArrowInvalid as problem:
            raise InvalidRequest(
                f"{path} of '{self._key}' cannot be read: {_said(problem)}", table=str(self._key), path=path
            ) from None

    def _fragment(self, path: str, schema: Any) -> Any:
        from penstock.formats.rows.arrow_types import pa

        dataset = import_module("pyarrow.dataset")

        where = None
        for name, value in _told(path).items():
            if schema is not None and name in schema.names:
                field = dataset.field(name)
                typed = None if value is None else pa.scalar(value).cast(schema.field(name).type)
                is_so = field.is_null() if typed is None else field == typed
                where = is_so if where is None else where & is_so
        file = pa.PythonFile(self._files.open(path), mode="r")
        return self._reader(self._kind(path), schema).make_fragment(file, partition_expression=where)

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


def _said(problem: Exception) -> str:
    """What Arrow says, without what follows of the program that it was asked by."""
    return str(problem).partition("\n")[0].partition(" Detail: ")[0]


def _told(path: str) -> Mapping[str, str | None]:
    """The columns that a path tells, with their values."""
    found = {unquote(one[1]): unquote(one[2]) for one in _PARTITION.finditer(path)}
    return {name: None if value == NO_VALUE else value for name, value in found.items()}


def _type(values: list[str | None]) -> Any:
    from penstock.formats.rows.arrow_types import pa

    are_whole = all(_WHOLE.fullmatch(one) for one in values if one is not None)
    return pa.int64() if are_whole else pa.string()
