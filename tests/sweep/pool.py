"""Files of tables in a lake's pool: what jobs write, commit and leave behind."""

from __future__ import annotations

import os
import time
from pathlib import Path
from uuid import UUID, uuid4

from penstock.formats.files.files import File, make_folder_name
from penstock.formats.files.intents import NAME, WriteIntent, encode_write
from penstock.formats.files.lake.answers import FilesWritten, JobBegun
from penstock.formats.files.lake.calls import BeginJob, CopiedFile, GetFiles, ListFiles, NewFile, WriteFiles
from penstock.formats.files.lake.pool import find_pool
from penstock.lake.answers import SweptFiles
from penstock.lake.lake import Lake
from penstock.model.commits import CommitMeta
from penstock.model.keys import Key
from penstock.model.operations import Change

DAY_S = 86_400


class Pool:
    """The pool of a lake, as its writers use it."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.url = find_pool(lake.warehouse)

    @property
    def root(self) -> Path:
        return Path(self.url)

    def folder(self, days: float = 0.0, fence: UUID | None = None) -> str:
        """A new folder, as if an attempt had begun so many days before the lake's clock."""
        began_us = self.lake.kernel.clock() - int(days * DAY_S * 1e6)
        return make_folder_name(self.lake.id, fence or uuid4(), began_us)

    def put(self, folder: str, *names: str, days: float = 0.0) -> set[str]:
        """Write files, and let them be so many days old; returns their names below the pool."""
        for name in names:
            if "://" in self.url:
                self.lake.places.open_place(self.url).put(folder + name, name.encode())
                continue
            (self.root / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / folder / name).write_bytes(name.encode())
            if days:
                written_s = time.time() - days * DAY_S
                os.utime(self.root / folder / name, (written_s, written_s))
        return {folder + name for name in names}

    def write(self, key: str, *names: str, branch: str | None = None, **more: object) -> str:
        """Write files and commit them; returns their folder."""
        folder = self.folder()
        self.put(folder, *names)
        self.lake.do(self.writing(key, folder, *names, branch=branch, **more))
        return folder

    def writing(
        self, key: str, folder: str, *names: str, branch: str | None = None, **more: object
    ) -> WriteFiles:
        new = tuple(NewFile(path=name, size=len(name.encode())) for name in names)
        return WriteFiles(key=Key.parse(key), branch=branch, folder=folder, put=new, **more)  # type: ignore[arg-type]

    def remove(self, key: str, *names: str, branch: str | None = None) -> None:
        self.lake.do(WriteFiles(key=Key.parse(key), branch=branch, removed=names))

    def copy(self, key: str, source: str, path: str, target: str, branch: str | None = None) -> None:
        copied = CopiedFile(path=path, source=source, key=Key.parse(key))
        self.lake.do(WriteFiles(key=Key.parse(target), branch=branch, copied=(copied,)))

    def land_late(self, key: str, folder: str, name: str, branch: str = "main") -> None:
        """Commit a file long after it was written: later than the lake lets any job do it."""
        write = WriteIntent(put=((name, File(folder, len(name.encode()), 1)),), creates=True)
        change = Change(Key.parse(key), NAME, encode_write(write))
        self.lake.kernel.commit(branch, [change], CommitMeta(), create_namespaces=True)

    # -- jobs ----------------------------------------------------------------------------------------------

    def begin(self, key: str, job: str | None = None, **more: object) -> JobBegun:
        call = BeginJob(id=job or uuid4().hex, fence=uuid4().hex, key=Key.parse(key), **more)  # type: ignore[arg-type]
        return self.lake.do(call)

    def below(self, begun: JobBegun) -> str:
        """The folder of a job's attempt, below the pool."""
        return begun.folder.removeprefix(self.url)

    def commit(self, begun: JobBegun, *names: str) -> FilesWritten:
        folder = self.below(begun)
        fence = folder.rstrip("/").rpartition("/")[2]
        job = begun.job
        return self.lake.do(self.writing(job.key, folder, *names, branch=job.branch, job=job.id, fence=fence))

    # -- what is there -------------------------------------------------------------------------------------

    def files(self) -> set[str]:
        """The names of all files that attempts have written, below the pool."""
        place = self.lake.places.open_place(self.url)
        return {entry.key for entry in place.entries() if "-" in entry.key.partition("/")[0]}

    def read(self, key: str, at: str | None = None) -> dict[str, bytes]:
        """The bytes of a table's files, read from where the lake says they are; all of them must be there."""
        place = self.lake.places.open_place(self.url)
        found = self.lake.do(ListFiles(key=Key.parse(key), at=at, limit=None))
        told = self.lake.do(GetFiles(key=Key.parse(key), at=at, file=tuple(one.path for one in found)))
        assert found == told
        data = [*place.read([one.address.removeprefix(self.url) for one in found])]
        assert None not in data
        return {one.path: each for one, each in zip(found, data, strict=True) if each is not None}


def names(lake: Lake, key: str, at: str | None = None) -> set[str]:
    return set(Pool(lake).read(key, at))


def swept(lake: Lake, *, remove_data: bool = True, dry_run: bool = False) -> SweptFiles:
    """What a sweep came to that found nothing wrong."""
    told = lake.sweep_files(remove_data=remove_data, dry_run=dry_run)
    assert told.problem == "", told.problem
    return told
