"""Writes to a Lance table with Spark: the rows of a DataFrame become rows of it, in one commit.

Tasks write fragments into the folder that the branch has of the table, where nobody sees them, and the driver
commits all of them as one version. A table that is not there is made in a transaction, which lands with its
rows or not at all. Whatever ends a job before its commit leaves the table as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import CommitConflict, IdempotencyKeyReused, KeyNotFound, NotManaged, PenstockError
from penstock.formats.lance.lake.answers import LanceTableInfo
from penstock.formats.lance.lake.calls import GetLanceTable
from penstock.formats.lance.lake.failures import conflict_error, own_errors
from penstock.formats.lance.lake.jobs import CommittedJob
from penstock.formats.lance.spark import output, table_creation, version_commit
from penstock.formats.lance.spark.lance_write_options import (
    LanceWriteOptions,
    check_storage_version,
    make_commit_properties,
    make_transaction_properties,
)
from penstock.formats.lance.spark.output import FragmentTarget, LanceOutput
from penstock.formats.lance.spark.pickled_table import pickle_table
from penstock.formats.lance.spark.repeated_job import find_earlier_result
from penstock.formats.lance.spark.schemas import ColumnFit, fit_columns, make_table_schema, to_arrow_schema
from penstock.formats.lance.spark.version_commit import LanceProposal
from penstock.lake.job_files import JobStart, is_refusal
from penstock.lake.write_jobs import SaveMode
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key
from penstock.spark.requests import WriteResult
from penstock.spark.schemas import is_case_sensitive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.lake.lake import Lake

TRIES_MAX: Final = 5
"""How often a job is run because the table came, went or moved while it ran."""
SENDS_MAX: Final = 20
"""How often its commit is made anew, for the table as it is then."""


def write_rows(
    df: DataFrame, lake: Lake, key: Key, branch: str | None, order: LanceWriteOptions
) -> WriteResult | None:
    """Write the rows of a DataFrame to a Lance table; ``None`` if that changes nothing.

    ``InvalidRequest`` if the rows do not fit the table, as far as types tell before anything is written.
    ``CommitConflict`` if the table is not as the mode wants it, or was changed in a way that the rows do not
    go together with. ``OutcomeUnknown`` if it cannot be known whether it was done: asking again with the same
    ``job_id`` tells.
    """
    lake.begin_write(makes_lake=order.create)
    where = branch if branch is not None else lake.default_branch
    arrow_schema = to_arrow_schema(df.schema)
    check_storage_version(order)
    for tries_left in reversed(range(TRIES_MAX)):
        if order.is_named and (earlier_result := find_earlier_result(lake, key, where, order)) is not None:
            return earlier_result
        about = find_table(lake, key, where)
        try:
            if about is None:
                return _create_and_write(df, lake, key, where, order, arrow_schema)
            return _write_rows(df, lake, about, where, order, arrow_schema)
        except IdempotencyKeyReused:
            if (earlier_result := find_earlier_result(lake, key, where, order)) is None:
                raise
            return earlier_result
        except CommitConflict:
            now = find_table(lake, key, where)
            if (
                not tries_left
                or order.mode is SaveMode.ERROR
                or _find_table_folder(now) == _find_table_folder(about)
            ):
                raise
            # What it means for this job that the table came, went or moved is decided by what is there now.
    raise AssertionError("unreachable: the last attempt neither returned nor raised an error")


def find_table(lake: Lake, key: Key, branch: str) -> LanceTableInfo | None:
    """The table, as it can be written to on a branch; ``NotManaged`` if the key is something else's."""
    try:
        return lake.do(GetLanceTable(key=key, at=branch, to_write=True))
    except KeyNotFound:
        return None
    except NotManaged as problem:
        raise NotManaged(
            f"{problem.message}\n  Leave out format='lance', or write to another key.", key=str(key)
        ) from None


def _find_table_folder(about: LanceTableInfo | None) -> tuple[str, bool] | None:
    return None if about is None else (about.folder, about.version is None)


# -- tables that are not there -----------------------------------------------------------------------------


def _create_and_write(
    df: DataFrame, lake: Lake, key: Key, branch: str, order: LanceWriteOptions, given: Any
) -> WriteResult | None:
    if not order.create:
        raise KeyNotFound(f"there is no '{key}' on '{branch}', and create is False", key=str(key), ref=branch)
    schema = make_table_schema(given, order.vectors)  # before anything is asked of the lake
    with table_creation.declare_table(lake, key, branch, order) as new:
        written = _write_fragments(df, lake, new.about, _fit_all_columns(schema), order)
        proposal = _make_proposal(df, new.about, new.branch, order, written, schema)
        proposal = msgspec.structs.replace(proposal, job=new.job)
        committed = _commit_with_retries(lake, new.about, new.about.folder, proposal)
        with _removed_if_refused(lake, new.about, written):
            landed = (
                new.commit_table(make_commit_properties(df.sparkSession, key, order, written))
                or committed.commit
            )
    return _write_result(key, branch, order, written, msgspec.structs.replace(committed, commit=landed))


# -- tables that are there ---------------------------------------------------------------------------------


def _write_rows(
    df: DataFrame, lake: Lake, about: LanceTableInfo, branch: str, order: LanceWriteOptions, given: Any
) -> WriteResult | None:
    key = about.key
    if about.version is not None and order.mode is SaveMode.IGNORE:
        return None
    if about.version is not None and order.mode is SaveMode.ERROR:
        why = f"already has rows, in version {about.version}; nothing was written"
        raise CommitConflict([Conflict(ConflictKind.FORMAT, key, why=why)])
    if about.version is None:
        schema = make_table_schema(given, order.vectors)
        written = _write_fragments(df, lake, about, _fit_all_columns(schema), order)
        proposal = _make_proposal(df, about, branch, order, written, schema)
        # Whoever made the first version meanwhile decides what the table is.
        proposal = msgspec.structs.replace(proposal, tries_max=0)
        return _write_result(
            key, branch, order, written, _commit_with_retries(lake, about, about.folder, proposal)
        )
    opened = _open_dataset(lake, key, branch)
    is_overwrite = order.mode is SaveMode.OVERWRITE
    if is_overwrite and order.overwrite_schema:
        fitting = _fit_all_columns(make_table_schema(given, order.vectors))
    else:
        fitting = fit_columns(key, given, opened.schema, case_sensitive=is_case_sensitive(df.sparkSession))
    written = _write_fragments(df, lake, about, fitting, order, opened)
    if not written.fragments and not is_overwrite:
        return None
    proposal = _make_proposal(df, about, branch, order, written, fitting.schema if is_overwrite else None)
    if is_overwrite and not order.overwrite_schema:
        # A column that somebody else adds meanwhile is not dropped by that.
        proposal = msgspec.structs.replace(proposal, keeps_columns=True)
    return _write_result(key, branch, order, written, _commit_with_retries(lake, about, opened, proposal))


def _open_dataset(lake: Lake, key: Key, branch: str) -> Any:
    import lance

    with own_errors(lake.lance(branch).outside_read_set, key) as client:
        return lance.dataset(namespace_client=client, table_id=[*key])


def _write_fragments(
    df: DataFrame,
    lake: Lake,
    about: LanceTableInfo,
    fitting: ColumnFit,
    order: LanceWriteOptions,
    opened: Any = None,
) -> LanceOutput:
    began, options = JobStart.at_lake_time(lake), dict(order.options)
    if opened is not None and order.mode is SaveMode.OVERWRITE:
        options.setdefault("data_storage_version", opened.data_storage_version)
    target = FragmentTarget(
        place=lake.places.open_place(about.folder),
        dataset=about.folder if opened is None else pickle_table(opened),
        fit=fitting,
        mode="create" if opened is None else order.mode.value,
        options=options,
    )
    written = output.write_fragments(df, target)
    try:
        began.check_in_time()
    except PenstockError:
        output.remove_written_files(target.place, written.files)
        raise
    return written


def _fit_all_columns(schema: Any) -> ColumnFit:
    """How rows become those of a table that has the same columns."""
    return ColumnFit(schema=schema, columns=tuple(schema.names))


# -- the commit --------------------------------------------------------------------------------------------


def _make_proposal(
    df: DataFrame,
    about: LanceTableInfo,
    branch: str,
    order: LanceWriteOptions,
    output: LanceOutput,
    schema: Any,
) -> LanceProposal:
    return LanceProposal(
        key=about.key,
        branch=branch,
        job=order.job,
        said=make_commit_properties(df.sparkSession, about.key, order, output),
        output=output,
        schema=schema,
        properties=make_transaction_properties(order),
    )


def _commit_with_retries(
    lake: Lake, about: LanceTableInfo, base: Any, proposal: LanceProposal
) -> CommittedJob:
    """Commit the written fragments, with retries. The files of a refused commit are removed."""
    with _removed_if_refused(lake, about, proposal.output):
        for tries_left in reversed(range(SENDS_MAX)):
            try:
                return version_commit.commit_fragments(lake, base, proposal)
            except CommitConflict:
                # The same rows may go together with what is there now: after somebody else's overwrite, say.
                again = (
                    None
                    if isinstance(base, str) or not tries_left
                    else _reopen_table(lake, about, base, proposal)
                )
                if again is None:
                    raise
                base = again
    raise AssertionError("unreachable: the last attempt neither returned nor raised an error")


@contextmanager
def _removed_if_refused(lake: Lake, about: LanceTableInfo, done: LanceOutput) -> Iterator[None]:
    try:
        yield
    except PenstockError as problem:
        if is_refusal(problem):
            output.remove_written_files(lake.places.open_place(about.folder), done.files)
        raise


def _reopen_table(lake: Lake, about: LanceTableInfo, base: Any, proposal: LanceProposal) -> Any:
    """The table as it is now, if fragments that were written for it as it was are still some of its own.

    ``CommitConflict`` if they are to have the columns that it had, and it has others by now.
    """
    now = find_table(lake, about.key, proposal.branch)
    if now is None or (now.id, now.folder) != (about.id, about.folder) or now.version is None:
        return None
    opened = _open_dataset(lake, about.key, proposal.branch)
    if proposal.keeps_columns:
        is_same = opened.schema == base.schema
    else:
        is_same = proposal.schema is not None or str(opened.lance_schema) == str(base.lance_schema)
    if not is_same:
        raise conflict_error(about.key, "its columns have changed")
    return opened


def _write_result(
    key: Key, branch: str, order: LanceWriteOptions, output: LanceOutput, committed: CommittedJob
) -> WriteResult:
    return WriteResult(
        key=key,
        branch=branch,
        version=committed.version,
        commit=committed.commit,
        job=order.job,
        rows=output.rows,
    )
