"""Rows of a table of files: one file after the other, each as Arrow's readers of its format read it.

How they are to be read is what the table's last job said; what it did not say is seen from the files: their
formats from their names, and from all of them together which columns there are. Columns that only a path
tells, as in ``day=1/``, are filled in. Empty files have no rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol
from urllib.parse import unquote

from penstock.errors import InvalidRequest
from penstock.formats.files.lake.data_files import NO_VALUE, is_data
from penstock.formats.rows.schema import parse_schema
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.formats.files.files import FilesLayout
    from penstock.formats.files.lake.answers import FileEntry, TableLayout

FORMATS: Final = ("parquet", "csv", "json", "orc", "arrow", "feather")
"""Those that can be read."""
_PARTITION: Final = re.compile(r"([^/=]+)=([^/]*)/")
_WHOLE: Final = re.compile(r"-?\d{1,18}")


class FileCollection(Protocol):
    """The files of a table, in one state."""

    def walk(self, folder: str = "") -> Iterator[FileEntry]: ...

    def open(self, path: str) -> BinaryIO: ...


class FileRows:
    """Reads a table of files, in one state."""

    def __init__(self, key: Key, files: FileCollection, layout: FilesLayout | TableLayout) -> None:
        self._key, self._files, self._layout = key, files, layout

    def begin_reading(
        self, columns: Sequence[str] | None = None, hint: Any = None, paths: Sequence[str] | None = None
    ) -> Any:
        """The rows as a ``pyarrow.RecordBatchReader``; without columns if there is neither a file nor a word
        of them. ``InvalidRequest`` if a file cannot be read, or files do not go together.

        Only some columns are read, or rows for which an expression of Arrow's may be true, or the files at
        some paths.
        """
        from penstock.formats.rows.arrow_types import pa

        names = self.schema.names if columns is None else columns
        schema = pa.schema([self.schema.field(name) for name in names])
        batches = self._read_batches(self._paths if paths is None else paths, names, hint)
        return pa.RecordBatchReader.from_batches(schema, batches)

    @cached_property
    def entries(self) -> list[FileEntry]:
        """The files that have rows."""
        return [entry for entry in self._files.walk() if entry.size and is_data(entry.path)]

    @property
    def _paths(self) -> list[str]:
        return [entry.path for entry in self.entries]

    def count_rows(self) -> int:
        """How many rows there are. Of files that say it themselves, no rows are read."""
        if not self.schema.names:
            return 0
        tell = [path for path in self._paths if self._choose_file_format(path) == "parquet"]
        others = [path for path in self._paths if self._choose_file_format(path) != "parquet"]
        total: int = sum(batch.num_rows for batch in self.begin_reading(self.schema.names[:1], paths=others))
        for path in tell:
            with self._name_file_in_errors(path):
                total += self._open_fragment(path, self.schema).count_rows()
        return total

    def _choose_file_format(self, path: str) -> str:
        kind = self._layout.format or path.rpartition("/")[2].rpartition(".")[2].lower()
        if kind not in FORMATS:
            raise InvalidRequest(
                f"'{self._key}' has files of a format whose rows cannot be read here ('{kind}'), such as "
                f"{path}; the formats are {', '.join(FORMATS)}. The bytes of any file can be read by .files",
                table=str(self._key),
                path=path,
            )
        return kind

    @cached_property
    def schema(self) -> Any:
        """All columns, those of paths last if only they tell of them."""
        from penstock.formats.rows.arrow_types import pa

        if self._layout.schema:
            from penstock.formats.rows.arrow_types import make_arrow_schema

            return make_arrow_schema(parse_schema(self._layout.schema).fields)
        inside, partitions = self._schema_in_files(), [_parse_partition_values(path) for path in self._paths]
        names = dict.fromkeys(name for values in partitions for name in values if name not in inside.names)
        values = {name: [partition.get(name) for partition in partitions] for name in names}
        return pa.schema(
            [*inside, *((name, _guess_type(column_values)) for name, column_values in values.items())]
        )

    def _schema_in_files(self) -> Any:
        """The columns that are in the files, each of a type that holds the values of all of them."""
        from penstock.formats.rows.arrow_types import pa

        schemas = []
        for path in self._paths:
            with self._name_file_in_errors(path):
                schemas.append(self._open_fragment(path, None).physical_schema.remove_metadata())
        try:
            return pa.unify_schemas([pa.schema([]), *schemas], promote_options="permissive")
        except (pa.ArrowException, ValueError) as problem:
            raise InvalidRequest(
                f"the files of '{self._key}' have incompatible schemas: {_get_first_arrow_line(problem)}",
                table=str(self._key),
            ) from None

    def _read_batches(self, paths: Sequence[str], names: Sequence[str], hint: Any) -> Iterator[Any]:
        for path in paths:
            with self._name_file_in_errors(path):
                file = self._open_fragment(path, self.schema)
                yield from file.to_batches(schema=self.schema, columns=list(names), filter=hint)

    @contextmanager
    def _name_file_in_errors(self, path: str) -> Iterator[None]:
        """Raise errors of Arrow as ``InvalidContent`` with the file's name."""
        from penstock.formats.rows.arrow_types import pa

        try:
            yield
        except pa.ArrowInvalid as problem:
            raise InvalidRequest(
                f"{path} of '{self._key}' cannot be read: {_get_first_arrow_line(problem)}",
                table=str(self._key),
                path=path,
            ) from None

    def _open_fragment(self, path: str, schema: Any) -> Any:
        from penstock.formats.rows.arrow_types import pa

        dataset = import_module("pyarrow.dataset")

        where = None
        for name, value in _parse_partition_values(path).items():
            if schema is not None and name in schema.names:
                field = dataset.field(name)
                typed = None if value is None else pa.scalar(value).cast(schema.field(name).type)
                is_so = field.is_null() if typed is None else field == typed
                where = is_so if where is None else where & is_so
        file = pa.PythonFile(self._files.open(path), mode="r")
        return self._make_reader(self._choose_file_format(path), schema).make_fragment(
            file, partition_expression=where
        )

    def _make_reader(self, kind: str, schema: Any) -> Any:
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
        if self._layout.format:
            convert.null_values = [options.get("nullvalue", "")]
            convert.quoted_strings_can_be_null = False
        return dataset.CsvFileFormat(parse_options=parse, read_options=read, convert_options=convert)


def _get_first_arrow_line(problem: Exception) -> str:
    """The first line of Arrow's error message."""
    return str(problem).partition("\n")[0].partition(" Detail: ")[0]


def _parse_partition_values(path: str) -> Mapping[str, str | None]:
    """The partition columns in a path, ``name=value`` folders, with their values."""
    values = {unquote(match[1]): unquote(match[2]) for match in _PARTITION.finditer(path)}
    return {name: None if value == NO_VALUE else value for name, value in values.items()}


def _guess_type(values: list[str | None]) -> Any:
    from penstock.formats.rows.arrow_types import pa

    are_whole = all(_WHOLE.fullmatch(value) for value in values if value is not None)
    return pa.int64() if are_whole else pa.string()
