"""How the files of a table are read by Spark: which options hold, and where each file lies.

The same for whoever reads: ``penstock.spark.read``, and code that knows only its session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.errors import InvalidRequest
from penstock.formats.files.lake.answers import FileEntry, FilesTableInfo, TableLayout
from penstock.formats.files.lake.data_files import is_hidden
from penstock.formats.files.lake.partition_columns import PartitionColumns
from penstock.formats.files.lake.pool import find_pool
from penstock.lake.scan_files import ScanFile
from penstock.lake.session_settings import OPTION
from penstock.model.keys import Key
from penstock.storage.places import POOL

LISTING_OPTIONS: Final = frozenset(
    {
        "path",
        "basepath",
        "recursivefilelookup",
        "pathglobfilter",
        "modifiedbefore",
        "modifiedafter",
        "ignoredpathsegmentregex",
    }
)
"""Options by which Spark would choose files. Which files there are is the lake's to say."""
_INFERENCE_OPTIONS: Final = ("mergeschema", "inferschema")
"""Options by which columns are to be those of the files, whatever the last job said."""


def scan_layout(
    about: FilesTableInfo, requested_format: str | None, options: Mapping[str, str]
) -> TableLayout:
    """How files are read, as the table's last job said and as the reader says otherwise.

    The schema is empty if Spark is to look into the files for it. ``InvalidRequest`` if it is not known which
    format they have, or the reader wants to choose files.
    """
    chosen = requested_format or about.layout.format
    if not chosen:
        raise InvalidRequest(
            f"the format of the files of '{about.key}' is not known: give it, as in format='parquet'",
            table=str(about.key),
        )
    if ours := sorted(name for name in options if name.lower().startswith(OPTION)):
        raise InvalidRequest(
            f"'{ours[0]}' is not an option of Spark's reader; pass options of the lake as arguments"
        )
    refused = sorted(name for name in options if name.lower() in LISTING_OPTIONS)
    if refused:
        raise InvalidRequest(
            f"the lake decides which files '{about.key}' has, so {', '.join(refused)} cannot be used; "
            "'folder' reads a part of the table",
            table=str(about.key),
        )
    # Of another format than the last job's, what it said is not about these files.
    is_said = chosen.lower() == about.layout.format.lower()
    before = about.layout.options if is_said else {}
    names = {name.lower() for name in options} | LISTING_OPTIONS
    infers = any(value == "true" for name, value in options.items() if name.lower() in _INFERENCE_OPTIONS)
    return TableLayout(
        format=chosen,
        partition_by=about.layout.partition_by,
        schema=about.layout.schema if is_said and not infers else "",
        options={name: value for name, value in before.items() if name.lower() not in names} | {**options},
    )


def scan_files(
    key: Key, warehouse: str, files: Iterable[tuple[str, FileEntry]], partitions: PartitionColumns
) -> list[ScanFile]:
    """The files as Spark is told of them, below the warehouse.

    Each comes with the path by which its partition is known. ``InvalidRequest`` for one that Spark would
    leave out without a word.
    """
    pool = find_pool(warehouse)
    scan_files = []
    for path, entry in files:
        name = entry.address.removeprefix(pool)
        if is_hidden(name.rpartition("/")[2]):
            raise InvalidRequest(
                f"the file at '{entry.path}' of '{key}' is stored as {name!r}, a name that Spark ignores: "
                "write it again under its path, and the lake stores it under another name",
                table=str(key),
            )
        modified_ms = 0 if entry.modified is None else int(entry.modified.timestamp() * 1000)
        scan_files.append(ScanFile(POOL + name, entry.size, modified_ms, partitions.parse_values(path)))
    return scan_files
