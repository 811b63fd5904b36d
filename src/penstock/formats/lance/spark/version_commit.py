"""Commits the fragments that Spark's tasks wrote as one version of a Lance table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.formats.lance.lake.jobs import CommittedJob, JobNamespace, LanceJob
from penstock.lake.call import CommitDescription
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.formats.lance.spark.output import LanceOutput
    from penstock.lake.lake import Lake


class LanceProposal(msgspec.Struct, frozen=True, kw_only=True):
    """What a job wants to commit."""

    key: Key
    branch: str
    job: str
    said: CommitDescription
    output: Any
    """The fragments."""
    schema: Any
    """That the table is to have from then on; nothing if it keeps its own, and its rows."""
    properties: dict[str, str]
    """Of Lance's own transaction."""
    keeps_columns: bool = False
    """Whether it takes the place of all rows, and has the columns that the table had: so it goes on top of no
    version but the one that was looked at."""
    tries_max: int = 20
    """How often Lance tries to make a version on top of others'."""


def commit_fragments(lake: Lake, base: Any, proposal: LanceProposal) -> CommittedJob:
    """Commit fragments to a table, as it was opened, or to the folder of one that has no version.

    Raises as ``JobNamespace.run_lance_job``.
    """
    import lance

    read_version = 0 if isinstance(base, str) else base.version
    transaction = lance.Transaction(
        read_version=read_version,
        operation=_make_operation(proposal),
        transaction_properties=proposal.properties,
    )
    job = LanceJob(
        key=proposal.key,
        branch=proposal.branch,
        id=proposal.job,
        id_name="job_id",
        said=proposal.said,
        follows=read_version if proposal.keeps_columns else None,
    )
    return JobNamespace(lake, job).run_lance_job(
        lambda client: lance.LanceDataset.commit(
            base,
            transaction,
            max_retries=0 if proposal.keeps_columns else proposal.tries_max,
            namespace_client=client,
            table_id=[*proposal.key],
            namespace_client_managed_versioning=True,
        )
    )


def _make_operation(proposal: LanceProposal) -> Any:
    from lance import LanceOperation as Lance
    from lance.fragment import FragmentMetadata

    output: LanceOutput = proposal.output
    fragments = [FragmentMetadata.from_json(json.dumps(fragment)) for fragment in output.fragments]
    if proposal.schema is None:
        return Lance.Append(fragments)
    return Lance.Overwrite(proposal.schema, fragments)
