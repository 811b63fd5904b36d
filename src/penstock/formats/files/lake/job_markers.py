"""What a job writes beside its finished files: the ``_SUCCESS`` marker, and the list for its commit."""

from __future__ import annotations

import hashlib
import time
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from penstock.formats.files.files import MARKER
from penstock.formats.files.lake import save_job as files_save_job
from penstock.formats.files.lake.calls import ListOfFiles, NewFile, WriteFiles
from penstock.formats.files.lake.pending_changes import SENT_MAX, write_file_list
from penstock.formats.files.lake.save_job import FilesJob, JobOutput

if TYPE_CHECKING:
    from penstock.storage.places import Place


def put_marker(
    pool: Place, folder: str, job: FilesJob, job_id: str, output: JobOutput, began: datetime
) -> NewFile:
    """Put the file that tells that a job is done into its folder. It is in the table once the others are."""
    now_us = time.time_ns() // 1000
    data = files_save_job.encode_success_marker(job, job_id, output, began, now_us)
    pool.put(folder + MARKER, data)
    digest = hashlib.sha256(data).hexdigest()
    return NewFile(path=MARKER, size=len(data), modified_us=now_us, checksum=f"sha256:{digest}")


def with_file_list(pool: Place, call: WriteFiles) -> WriteFiles:
    """The commit call of a job; if it names many files, with a list of them in the job's folder instead."""
    if isinstance(call.added, ListOfFiles) or len(call.added) <= SENT_MAX:
        return call
    return msgspec.structs.replace(call, added=write_file_list(pool, call.folder, call.added))
