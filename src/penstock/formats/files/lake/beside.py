"""What a job writes beside its files, once they are there: a marker for people, a list for its commit."""

from __future__ import annotations

import hashlib
import time
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from penstock.formats.files.files import MARKER
from penstock.formats.files.lake import saving as files_saving
from penstock.formats.files.lake.calls import ListOfFiles, NewFile, WriteFiles
from penstock.formats.files.lake.saving import FilesJob, Output
from penstock.formats.files.lake.writing import SENT_MAX, list_in

if TYPE_CHECKING:
    from penstock.storage.places import Place


def put_marker(
    pool: Place, folder: str, job: FilesJob, job_id: str, done: Output, began: datetime
) -> NewFile:
    """Put the file that tells that a job is done into its folder. It is in the table once the others are."""
    now_us = time.time_ns() // 1000
    data = files_saving.success(job, job_id, done, began, now_us)
    pool.put(folder + MARKER, data)
    digest = hashlib.sha256(data).hexdigest()
    return NewFile(path=MARKER, size=len(data), modified_us=now_us, checksum=f"sha256:{digest}")


def short(pool: Place, call: WriteFiles) -> WriteFiles:
    """The commit of a job, which names many files by a list in the job's folder."""
    if isinstance(call.added, ListOfFiles) or len(call.added) <= SENT_MAX:
        return call
    return msgspec.structs.replace(call, added=list_in(pool, call.folder, call.added))
