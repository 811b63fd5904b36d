"""Rules for calls about tables of files, and about the jobs that write them."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from penstock.errors import JobNotFound
from penstock.formats.files.lake.answers import (
    FileEntry,
    FilesTableInfo,
    FilesTotal,
    FilesWritten,
    JobBegun,
    JobInfo,
)
from penstock.formats.files.lake.calls import (
    AbortJob,
    BeginJob,
    GetFiles,
    GetFilesTable,
    ListFiles,
    ListJobs,
    SumFiles,
    WriteFiles,
)
from penstock.formats.files.lake.sweep_calls import SweepFiles
from penstock.lake import calls
from penstock.lake.call import take_first
from penstock.model.keys import Key
from penstock.model.tokens import Role
from penstock.server.access import write_rules
from penstock.server.access.format_rules import AccessRule
from penstock.server.access.rights import CallerRights
from penstock.server.access.transactions import TransactionAccess

C = TypeVar("C", ListFiles, GetFiles, SumFiles, GetFilesTable)


def list_files(rights: CallerRights, call: ListFiles) -> tuple[FileEntry, ...]:
    return rights.do(_require_readable(rights, call))


def get_files(rights: CallerRights, call: GetFiles) -> tuple[FileEntry, ...]:
    return rights.do(_require_readable(rights, call))


def sum_files(rights: CallerRights, call: SumFiles) -> FilesTotal:
    return rights.do(_require_readable(rights, call))


def get_files_table(rights: CallerRights, call: GetFilesTable) -> FilesTableInfo:
    return rights.do(_require_readable(rights, call))


def write_files(rights: CallerRights, call: WriteFiles) -> FilesWritten:
    """Whoever copies a file must be able to read it where it is: afterwards, they can."""
    _require_key(rights, call.branch, call.key)
    if call.create:
        _require_namespaces(rights, call)
    copied = []
    for copy in call.copied:
        at, keys = rights.find_readable_keys(call.branch if copy.at is None else copy.at)
        rights.caller.require_key(keys, Role.READ, call.key if copy.key is None else copy.key)
        copied.append(copy if copy.at is None else msgspec.structs.replace(copy, at=at))
    return rights.do(msgspec.structs.replace(call, copied=tuple(copied)))


def begin_job(rights: CallerRights, call: BeginJob) -> JobBegun:
    """A job with a branch of its own is merged from there: whatever is on that branch lands with it."""
    if call.own_branch and not rights.caller.find_keys_granted_everywhere(Role.WRITE).are_all:
        rights.caller.require_all_keys(Role.WRITE, rights.get_reference_or_default(call.branch))
    _require_key(rights, call.branch, call.key)
    return rights.do(msgspec.structs.replace(call, who=_author_or_caller(rights, call.who)))


def abort_job(rights: CallerRights, call: AbortJob) -> JobInfo:
    """For a caller who may not read a job, the job does not exist."""
    jobs = rights.do(ListJobs(id=call.id, all=True, limit=1))
    for job in jobs:
        branch_rights = TransactionAccess(rights).find_rights_on_branch(job.branch)
        if branch_rights is not None and _may_see(branch_rights, job):
            _require_key(branch_rights, job.branch, Key.parse(job.key))
            return branch_rights.do(msgspec.structs.replace(call, who=_author_or_caller(rights, call.who)))
    raise JobNotFound(f"there is no job '{call.id}', or it no longer exists", job=call.id)


def list_jobs(rights: CallerRights, call: ListJobs) -> tuple[JobInfo, ...]:
    """Jobs that write in a transaction are there for whom that is."""
    if rights.caller.is_admin:
        return rights.do(call)
    jobs, entering = rights.do(msgspec.structs.replace(call, limit=None)), TransactionAccess(rights)
    seen = (
        job
        for job in jobs
        if (branch_rights := entering.find_rights_on_branch(job.branch)) is not None
        and _may_see(branch_rights, job)
    )
    return tuple(take_first(seen, call.limit))


def _may_see(rights: CallerRights, job: JobInfo) -> bool:
    caller = rights.caller
    return caller.is_admin or caller.find_granted_keys(Role.READ, job.branch).covers_key(Key.parse(job.key))


def _author_or_caller(rights: CallerRights, author: str) -> str:
    return rights.caller.name or author


def _require_readable(rights: CallerRights, call: C) -> C:
    at, keys = rights.find_readable_keys(call.at, call.via)
    rights.caller.require_key(keys, Role.READ, call.key)
    return msgspec.structs.replace(call, at=at)


def _require_key(rights: CallerRights, branch: str | None, key: Key) -> None:
    """``Denied`` if the caller may not change a key on a branch."""
    if rights.caller.find_keys_granted_everywhere(Role.WRITE).are_all:
        return
    keys = rights.caller.require_role(Role.WRITE, rights.get_reference_or_default(branch))
    rights.caller.require_key(keys, Role.WRITE, key)


def _require_namespaces(rights: CallerRights, call: WriteFiles) -> None:
    """``Denied`` if a namespace above a new table is missing that the caller may not create."""
    caller = rights.caller
    if caller.find_keys_granted_everywhere(Role.WRITE).are_all:
        return
    branch = rights.get_reference_or_default(call.branch)
    keys = caller.find_granted_keys(Role.WRITE, branch)
    above = {parent for parent in call.key.parents if not keys.covers_key(parent)}
    if above:
        entries = rights.do(calls.GetContents(at=branch, key=tuple(sorted(above))))
        for missing in sorted(above - {entry.key for entry in entries}):
            raise caller.denied_error(f"create namespace '{missing}' there", key=str(missing))


RULES: Final[dict[type[calls.Call[Any]], AccessRule]] = {
    SweepFiles: write_rules.make_rule_for_role(Role.MAINTAIN),
    WriteFiles: write_files,
    ListFiles: list_files,
    GetFiles: get_files,
    SumFiles: sum_files,
    GetFilesTable: get_files_table,
    BeginJob: begin_job,
    AbortJob: abort_job,
    ListJobs: list_jobs,
}
"""Every call that the format answers, with its rule."""
