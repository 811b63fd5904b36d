"""What a lake offers for tables of files and loads when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.formats.files.lake.file_system import FilesSystem
    from penstock.lake.lake import Lake


def open_files_system(lake: Lake, ref: str, *, pinned: bool) -> FilesSystem:
    """See ``Lake.files_system``."""
    try:
        from penstock.formats.files.lake.file_system import FilesSystem
    except ModuleNotFoundError as missing:
        if missing.name != "fsspec":
            raise
        raise InvalidRequest(
            "the file system of the lake needs the library fsspec: pip install 'penstock[files]'"
        ) from None
    return FilesSystem(lake, ref, pinned=pinned)
