"""Reads of code that knows only its Spark session: the files of a table that a path or an option names.

Penstock's class in the JVM tells what Spark is about to read, and is answered with the files that the lake
has there, at one commit. As for writes (``sessions``) nothing is remembered between two requests: the commit
that a query reads comes with each of them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from penstock.errors import InvalidRequest, KeyNotFound, TransactionNotFound, TransactionOver
from penstock.formats.files.lake.answers import FileEntry, FilesTableInfo
from penstock.formats.files.lake.calls import GetFiles, GetFilesTable, ListFiles
from penstock.formats.files.lake.data_files import is_data
from penstock.formats.files.lake.partition_columns import (
    PartitionColumns,
    PartitionRules,
    find_partition_columns,
    unescape_partition_text,
)
from penstock.formats.files.lake.paths import normalise_folder
from penstock.formats.files.lake.scan import LISTING_OPTIONS, scan_files, scan_layout
from penstock.formats.files.lake.session_facts import check_table_named, find_table_at, select_lake_options
from penstock.formats.files.lake.sessions import SessionCaller
from penstock.lake.answers import About, ResolvedCommit
from penstock.lake.calls import GetAbout, Resolve
from penstock.lake.query_pins import PinnedCommit
from penstock.lake.scan_files import STRICT, pack_scan_files
from penstock.lake.session_settings import OPTION, check_settings, parse_mapped_tables
from penstock.lake.transactions.calls import NoteReads
from penstock.lake.transactions.read_set import find_transaction_read
from penstock.model.keys import Key
from penstock.model.reads import Read
from penstock.storage.hadoop import HadoopPath, make_hadoop_address, parse_hadoop_path

READ: Final = "read"
"""What the JVM calls it."""
PAGE_MAX: Final = 10_000
REF: Final = "ref"
"""The option of a read that names a branch, a tag or a commit. A branch may be named as for a write, too."""

_OF_ANY_BYTES: Final = frozenset({"text", "binaryfile"})
"""Formats by which files of every other one can be read."""
_OF_NAMED_COLUMNS: Final = frozenset({"parquet", "orc", "json", "avro"})
"""Formats whose files have names of columns: one that they do not have is null in each row."""
_OLD_FILES: Final = (
    "  Read them in a session without this path among 'tables', and write the rows to the table: "
    "penstock.spark.write(rows, key, format=…)."
)
_PATTERN: Final = frozenset("*?[{")


class ReadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What Spark knows of a read."""

    paths: tuple[str, ...] = ()
    """Whole URLs, as the code names them; patterns too."""
    home: str = ""
    """The file system that paths without a scheme are in."""
    tables: str = ""
    """The session's setting: an object of JSON, from paths to keys of tables."""
    options: dict[str, str] = {}
    settings: tuple[str, ...] = ()
    """The names of all settings of the session that are for the lake."""
    format: str = ""
    schema: str = ""
    """That the code or Spark's catalogue names, as JSON, with the partition columns; empty for none."""
    partition_by: tuple[str, ...] | None = None
    """Of a table in Spark's catalogue; nothing if only paths are read."""
    is_stream: bool = False
    pinned: dict[str, PinnedCommit] = {}
    """The commits that the same query reads already, by revision."""
    zone: str = "UTC"
    """Of times among the values of partition columns."""
    infers: bool = True
    """Whether types of partition columns follow from their values."""
    has_local_times: bool = False
    """Whether a time without a zone is a `timestamp_ntz`."""
    is_case_sensitive: bool = False


class SessionRead(msgspec.Struct, frozen=True, kw_only=True):
    """A read of Spark's."""

    facts: ReadFacts


class FilesToRead(msgspec.Struct, frozen=True, kw_only=True):
    """What Spark is to read instead."""

    is_ours: bool
    """Whether it is a table of the lake. Any other read is Spark's own affair."""
    ref: str = ""
    """The revision that was asked for, empty for the default branch, …"""
    pin: PinnedCommit | None = None
    """… and the commit there."""
    refusal: str = ""
    """Why the read is to be refused if any file is at the paths: the lake has no such table yet."""
    files: str = ""
    """As ``pack_scan_files`` makes them, in base64."""
    schema: str | None = None
    """The columns in the files, as JSON; nothing to have Spark look into them."""
    partition_schema: str = ""
    """The columns that are not in the files, as JSON."""
    how: dict[str, Any] = {}
    """The format, the options of its reader, the zone of times, and where the rows come from."""


def read_files(by: SessionCaller, session_read: SessionRead) -> FilesToRead:
    """The files that a read is of; ``InvalidRequest`` if it is of a table and cannot be answered."""
    facts = session_read.facts
    check_settings(facts.settings)
    options = select_lake_options(facts.options, "read", REF)
    named = options.get("table")
    tables = parse_mapped_tables(facts.tables, facts.home)
    table_and_folders = (
        (Key.parse(named), ("",)) if named is not None else _find_table_and_folders(facts, tables)
    )
    if table_and_folders is None:
        check_table_named(options)
        return FilesToRead(is_ours=False)
    key, folders = table_and_folders
    if facts.is_stream:
        raise InvalidRequest(
            f"'{key}' is a table of files, which cannot be read as a stream: its files are not at "
            f"{_describe_read(facts)}\n  Read it as a batch by spark.read, or keep its rows in a Delta "
            "table, which "
            "streams read by penstock.spark.stream.",
            table=str(key),
        )
    ref = _read_revision(options)
    return _SessionReader(by, facts, key, ref, tables).list_files_to_read(folders)


def read_table(by: SessionCaller, key: Key, facts: ReadFacts) -> FilesToRead:
    """The files of a table that is known by its key, at the commit that ``facts`` pin for no revision."""
    return _SessionReader(by, facts, key, "", {}).list_files_to_read(("",))


def _read_revision(options: Mapping[str, str]) -> str:
    if REF in options and "branch" in options:
        raise InvalidRequest(f"give only one of the options '{OPTION}{REF}' and '{OPTION}branch'")
    return options.get(REF) or options.get("branch") or ""


def _describe_read(facts: ReadFacts) -> str:
    return ", ".join(facts.paths) or "a path of the session's"


# -- which table -------------------------------------------------------------------------------------------


def _find_table_and_folders(
    facts: ReadFacts, tables: Mapping[HadoopPath, Key]
) -> tuple[Key, tuple[str, ...]] | None:
    """The table that paths stand for, and the folders of it; ``None`` if they stand for none."""
    places = [_find_mapped_table(path, tables, facts.home) for path in facts.paths]
    ours = [keys for keys in places if keys is not None]
    if not ours:
        return None
    keys = {key for key, _ in ours}
    if len(ours) < len(places) or len(keys) > 1:
        raise InvalidRequest(
            f"some of the paths that are read together are mapped to '{ours[0][0]}' of the lake, and "
            "others are not\n  Read them one by one, and unite the rows: one.unionByName(other)."
        )
    return keys.pop(), tuple(dict.fromkeys(folder for _, folder in ours))


def _find_mapped_table(path: str, tables: Mapping[HadoopPath, Key], home: str) -> tuple[Key, str] | None:
    try:
        place = parse_hadoop_path(path, home)
    except InvalidRequest:
        return None  # Spark says what is wrong with it
    for top, key in tables.items():
        if place.system != top.system:
            continue
        shorter = min(len(place.names), len(top.names))
        pairs = list(zip(place.names[:shorter], top.names[:shorter], strict=True))
        if any(here != there and not _PATTERN & set(here) for here, there in pairs):
            continue
        if any(_PATTERN & set(name) for name in place.names):
            raise InvalidRequest(
                f"the pattern {path} is not supported for '{key}' of the lake\n  Read the path that is "
                "mapped to the table, and select rows: .where(…).",
                table=str(key),
            )
        if len(place.names) < len(top.names):
            raise InvalidRequest(
                f"{path} contains a path that is mapped to '{key}' of the lake; reading it as a whole would "
                f"miss rows of that table, or read files that are not part of it\n  Read '{key}' and the "
                "other files separately.",
                table=str(key),
            )
    return find_table_at(path, tables, home)


# -- its files ---------------------------------------------------------------------------------------------


class _SessionReader:
    """Answers one read of a table."""

    def __init__(
        self, by: SessionCaller, facts: ReadFacts, key: Key, ref: str, tables: Mapping[HadoopPath, Key]
    ) -> None:
        self._by, self._facts, self._key, self._ref, self._tables = by, facts, key, ref, tables
        self._lake: About = by.do(GetAbout())
        pin = facts.pinned.get(ref)
        if pin is None:
            resolved: ResolvedCommit = by.do(Resolve(revision=ref or None))
            pin = PinnedCommit(commit=resolved.commit, via=resolved.name)
        self._pin = pin
        self._rules = PartitionRules(
            infers=facts.infers,
            timestamp="timestamp_ntz" if facts.has_local_times else "timestamp",
            is_case_sensitive=facts.is_case_sensitive,
        )

    def list_files_to_read(self, folders: tuple[str, ...]) -> FilesToRead:
        self._note_read(folders)
        try:
            about: FilesTableInfo = self._by.do(
                GetFilesTable(key=self._key, at=self._pin.commit, via=self._pin.via)
            )
        except KeyNotFound:
            if self._facts.partition_by is not None:
                return self._read_missing_table()
            raise KeyNotFound(
                f"there is no '{self._key}' in the lake, to which {_describe_read(self._facts)} is "
                "mapped: write to "
                f"it first. Files at the path itself do not belong to the lake.\n{_OLD_FILES}",
                key=str(self._key),
                ref=self._ref,
            ) from None
        files: list[tuple[str, FileEntry]] = []
        above: set[str] = set()
        for folder in folders:
            base, entries = self._list_files(folder)
            files += [(entry.path.removeprefix(base), entry) for entry in entries if is_data(entry.path)]
            names = (part.partition("=")[0] for part in base.split("/") if "=" in part)
            above |= {self._rules.fold_case(unescape_partition_text(name)) for name in names}
        return self._make_answer(about, above, files)

    def _note_read(self, folders: tuple[str, ...]) -> None:
        """In a transaction, remember what is read; as ``Table.note_read`` does."""
        transaction = find_transaction_read(self._pin.commit, self._pin.via)
        if transaction is None:
            return
        reads = tuple(Read(key=self._key, part=folder or None) for folder in folders)
        with suppress(TransactionNotFound, TransactionOver):
            self._by.do(NoteReads(id=transaction, reads=reads))

    def _read_missing_table(self) -> FilesToRead:
        """A table of Spark's catalogue that is not in the lake yet: it is empty, unless files lie there."""
        fields = _list_schema_fields(self._facts.schema) or []
        names = {self._rules.fold_case(name) for name in self._facts.partition_by or ()}
        by = [field for field in fields if self._rules.fold_case(field["name"]) in names]
        inside = [field for field in fields if field not in by]
        return FilesToRead(
            is_ours=True,
            ref=self._ref,
            pin=self._pin,
            refusal=(
                f"{_describe_read(self._facts)} is mapped to '{self._key}', which is not in the lake "
                "yet; the "
                "files at the path do not belong to the lake, so their rows would not be "
                f"read\n{_OLD_FILES}"
            ),
            files=self._pack_files([], PartitionColumns((), {})),
            schema=_make_struct_json(inside),
            partition_schema=_make_struct_json(by),
            how=self._scan_settings(self._facts.format, self._select_reader_options()),
        )

    def _make_answer(
        self, about: FilesTableInfo, above: set[str], files: list[tuple[str, FileEntry]]
    ) -> FilesToRead:
        """``above`` are the partition columns whose values the paths that are read have in themselves."""
        facts = self._facts
        self._check_format(about)
        layout = scan_layout(about, facts.format, self._select_reader_options())
        fields = _list_schema_fields(facts.schema)
        if fields is None and (fields := _list_schema_fields(layout.schema)) is not None:
            fields = [field for field in fields if self._rules.fold_case(field["name"]) not in above]
        types = {field["name"]: field["type"] for field in fields or () if isinstance(field["type"], str)}
        partitions = find_partition_columns((path for path, _ in files), types, self._rules)
        constants = [_make_field_json(name, kind) for name, kind in partitions.fields]
        if facts.partition_by is not None:
            constants = self._as_in_catalogue(about, fields or [], constants, has_files=bool(files))
        names = {self._rules.fold_case(constant["name"]) for constant in constants}
        inside = (
            None
            if fields is None
            else [field for field in fields if self._rules.fold_case(field["name"]) not in names]
        )
        if inside is None and not any(entry.size for _, entry in files):
            raise InvalidRequest(
                f"'{self._key}' has no rows, and its columns are not known: give them by .schema(…)",
                table=str(self._key),
            )
        return FilesToRead(
            is_ours=True,
            ref=self._ref,
            pin=self._pin,
            files=self._pack_files(files, partitions),
            schema=None if inside is None else _make_struct_json(inside),
            partition_schema=_make_struct_json(constants),
            how=self._scan_settings(layout.format, layout.options),
        )

    def _check_format(self, about: FilesTableInfo) -> None:
        table_format, read_format = about.layout.format.lower(), self._facts.format.lower()
        if about.files and table_format and read_format != table_format and read_format not in _OF_ANY_BYTES:
            raise InvalidRequest(
                f"'{self._key}' has files of the format '{table_format}', but is read as '{read_format}'\n  "
                f"Read it as '{table_format}'; a table of Spark's catalog must be created again with USING "
                f"{table_format}.",
                table=str(self._key),
            )

    def _as_in_catalogue(
        self,
        about: FilesTableInfo,
        fields: list[dict[str, Any]],
        constants: list[dict[str, Any]],
        *,
        has_files: bool,
    ) -> list[dict[str, Any]]:
        """The partition columns as Spark's catalogue has them; ``InvalidRequest`` if the lake has others."""
        folded = self._rules.fold_case
        by = self._facts.partition_by or ()
        fields_by_name = {folded(field["name"]): field for field in fields}
        if has_files and [folded(constant["name"]) for constant in constants] != [
            folded(constant) for constant in by
        ]:
            raise InvalidRequest(
                f"'{self._key}' is partitioned by "
                f"{_join_names(constant['name'] for constant in constants)}, but the table of Spark's "
                f"catalog by {_join_names(by)}\n  Create the table of the catalog again with the same "
                "partition columns: the rows stay in the lake.",
                table=str(self._key),
            )
        layout_fields = _list_schema_fields(about.layout.schema)
        if layout_fields is not None and about.files and self._facts.format.lower() in _OF_NAMED_COLUMNS:
            names = {folded(field["name"]) for field in layout_fields} | {folded(column) for column in by}
            absent = [field["name"] for field in fields if folded(field["name"]) not in names]
            if absent:
                raise InvalidRequest(
                    f"'{self._key}' has no column {_join_names(absent)}, which the table of Spark's "
                    "catalog has; its columns are "
                    f"{_join_names(field['name'] for field in layout_fields)}\n  Create the table of "
                    "the catalog again with these columns: the rows stay in the lake.",
                    table=str(self._key),
                )
        return [fields_by_name[folded(column)] for column in by if folded(column) in fields_by_name]

    def _list_files(self, folder: str) -> tuple[str, list[FileEntry]]:
        """The files in a folder, or the one file that it is, and the folder below which names are values."""
        at: dict[str, Any] = {"key": self._key, "at": self._pin.commit, "via": self._pin.via}
        limit = self._lake.page_max or PAGE_MAX
        call = ListFiles(**at, prefix=folder, limit=limit)
        entries: list[FileEntry] = []
        while True:
            page = self._by.do(call)
            entries += page
            if len(page) < limit:
                break
            call = msgspec.structs.replace(call, after=page[-1].path)
        if entries or not folder:
            return self._find_base_path(folder), entries
        path = folder.removesuffix("/")
        if not (entries := list(self._by.do(GetFiles(**at, file=(path,))))):
            raise InvalidRequest(
                f"'{self._key}' has neither a file nor a folder '{path}'", table=str(self._key)
            )
        return self._find_base_path(normalise_folder(path.rpartition("/")[0])), entries

    def _find_base_path(self, folder: str) -> str:
        """The folder below which folders stand for values: that which is read, or the option ``basePath``."""
        base_path = next((v for name, v in self._facts.options.items() if name.lower() == "basepath"), None)
        if base_path is None:
            return folder
        place = parse_hadoop_path(base_path, self._facts.home)
        for top, key in self._tables.items():
            if key == self._key and top.find_path_below(place) is not None:
                return ""
        table = find_table_at(base_path, self._tables, self._facts.home)
        if table is None or table[0] != self._key or not folder.startswith(table[1]):
            raise InvalidRequest(
                f"basePath must be a folder that contains {_describe_read(self._facts)}, got {base_path}"
            )
        return table[1]

    def _select_reader_options(self) -> dict[str, str]:
        """The options without those for the lake, and without those that say again where it is."""
        passed = {"path", "paths", "basepath"}
        options = {
            name: value
            for name, value in self._facts.options.items()
            if name.lower() not in passed and not name.lower().startswith(OPTION)
        }
        for name in list(options):
            if name.lower() in LISTING_OPTIONS:
                if name.lower() == "recursivefilelookup" and options[name].lower() == "false":
                    del options[name]
                    continue
                raise InvalidRequest(
                    f"the lake decides which files '{self._key}' has, so {name} cannot be used: leave it "
                    "out, and select rows by .where(…)",
                    table=str(self._key),
                )
        return options

    def _pack_files(self, files: list[tuple[str, FileEntry]], partitions: PartitionColumns) -> str:
        root = make_hadoop_address(self._lake.warehouse.rstrip("/"))
        scanned = scan_files(self._key, self._lake.warehouse, files, partitions)
        return base64.b64encode(pack_scan_files(root, scanned)).decode()

    def _scan_settings(self, chosen: str, options: Mapping[str, str]) -> dict[str, Any]:
        zone = next((v for name, v in options.items() if name.lower() == "timezone"), self._facts.zone)
        origin = f"{self._key}@{self._pin.commit}"
        return {"format": chosen, "options": {**STRICT, **options}, "zone": zone, "origin": origin}


def _list_schema_fields(schema: str) -> list[dict[str, Any]] | None:
    return msgspec.json.decode(schema)["fields"] if schema else None


def _make_struct_json(fields: list[dict[str, Any]]) -> str:
    return msgspec.json.encode({"type": "struct", "fields": fields}).decode()


def _make_field_json(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(names) or "no column"
