"""The directory of a lake on this machine: whether a new lake may be made there.

A lake in a directory of its own is found again, moved and backed up as a whole. Beside other files it is not,
and whoever cleans up those files may remove it. Files beside a lake whose database is empty are all that is
left of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from stat import S_IROTH, S_IXOTH
from typing import Final
from urllib.parse import unquote

from penstock.errors import InvalidRequest
from penstock.stores.urls import split_url

DATABASE_FILE: Final = "penstock.db"
_OWN: Final = {
    "sqlite": (DATABASE_FILE, f"{DATABASE_FILE}-wal", f"{DATABASE_FILE}-shm", f"{DATABASE_FILE}-journal"),
    "rocksdb": ("penstock", "rocksdb"),
    "file": ("lake", "objects", "rows", "kinds", "gone", "sweep", "probe", ".unfinished", ".locks"),
}
"""What each store makes in its directory."""
_OF_THE_SYSTEM: Final = ("lost+found", ".DS_Store")
"""What a new volume, or looking at a directory, leaves there."""
_TABLES: Final = {"_delta_log": "Delta", "_versions": "Lance"}
"""The folder that tells a table's directory, and the format of the table."""
SHOWN_MAX: Final = 3

PRIVATE_FILE: Final = 0o600
PRIVATE_DIRECTORY: Final = 0o700
"""The modes of a new lake's own files and folders, whatever the umask: they hold names, messages and hashes
of tokens. Who lets others in afterwards does so for good: nothing is changed that is there."""
_PRIVATE: Final = {
    "sqlite": (DATABASE_FILE,),  # what is beside it has its mode
    "rocksdb": ("rocksdb",),
    "file": ("objects", "rows", "kinds", "gone", "sweep", ".unfinished"),
}


def find_exposed_files(url: str) -> list[Path]:
    """What of a store on this machine everybody there can read. A group that was let in is not everybody."""
    scheme, path = find_directory(url)
    if scheme not in _PRIVATE or not all(parent.stat().st_mode & S_IXOTH for parent in path.parents):
        return []
    if path.is_file():
        own = [path]
    elif not path.is_dir() or not path.stat().st_mode & S_IXOTH:
        return []
    else:
        own = [path / name for name in _PRIVATE[scheme]]
    return [path for path in own if path.exists() and path.stat().st_mode & (S_IROTH | S_IXOTH)]


def find_directory(target: str) -> tuple[str, Path]:
    """The kind of a store at a local place, and its directory."""
    scheme, has_scheme, place = target.partition("://")
    if not has_scheme:
        scheme, place = "sqlite", target
    path = Path(unquote(split_url(target).path) if scheme == "file" else place).absolute()
    return scheme, path.parent if (scheme, path.name) == ("sqlite", DATABASE_FILE) else path


def require_room(target: str) -> None:
    """``InvalidRequest`` if a lake that is to be made at a local place would lie among other files."""
    scheme, path = find_directory(target)
    existing = next(above for above in (path, *path.parents) if above.exists())
    if not existing.is_dir():
        raise InvalidRequest(f"{path} cannot become a lake: {existing} is a file", path=str(path))
    for above in (path, *path.parents):
        for folder, table_format in _TABLES.items():
            if (above / folder).is_dir():
                raise InvalidRequest(
                    f"{path} cannot become a lake: {above} is the folder of a {table_format} table. "
                    "Choose a directory outside of it.",
                    path=str(path),
                )
    if others := sorted(_list_other_files(path, _OWN[scheme])):
        shown = ", ".join(others[:SHOWN_MAX]) + (", …" if len(others) > SHOWN_MAX else "")
        raise InvalidRequest(
            f"there is no lake at {path}, and it cannot become one: there are other files in it ({shown}). "
            f"Choose a new or an empty directory, such as {path / 'lake'}. If these are the files of a "
            "lake, restore its database from a backup.",
            path=str(path),
        )


def _list_other_files(path: Path, own: tuple[str, ...]) -> Iterator[str]:
    if not path.is_dir():
        return
    for entry in path.iterdir():
        is_own = entry.name in own or entry.name.startswith("penstock.draft.")
        if not is_own and entry.name not in _OF_THE_SYSTEM:
            yield entry.name
