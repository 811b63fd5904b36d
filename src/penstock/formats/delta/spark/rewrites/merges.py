"""A merge of rows into a Delta table: the files that it takes are written."""

from __future__ import annotations

from contextlib import nullcontext

from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.lake import row_rewrite
from penstock.formats.delta.lake.calls import WriterReads
from penstock.formats.delta.lake.row_rewrite import RowCounts, RowRewrite
from penstock.formats.delta.lake.schema_evolution import make_metadata_actions, with_columns
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_rules import has_generated_value, list_identity_columns
from penstock.formats.delta.rows.file_writer import check_features
from penstock.formats.delta.rows.merged_schemas import check_names
from penstock.formats.delta.spark.job.numbered_rows import hold_rows
from penstock.formats.delta.spark.job.tables import JobTable
from penstock.formats.delta.spark.rewrites.merge_pairs import MergePlan
from penstock.formats.rows.schema import StructType
from penstock.lake.row_changes import (
    INSERT,
    NOT_MATCHED,
    MergeClause,
    check_clauses,
    check_source_columns,
    takes_all_columns,
)
from penstock.spark.analysis import explain_analysis, parse_condition
from penstock.spark.requests import RowMerge
from penstock.spark.schemas import from_spark_schema, is_case_sensitive


def plan_merge(table: JobTable, plan: RowMerge) -> RowRewrite | None:
    """Write the files that a merge takes; ``None`` if there is nothing to do."""
    check_clauses(plan.clauses)
    becomes = _evolve_metadata(table, plan)
    planned = _plan_rows(table.with_metadata(becomes) if becomes != table.metadata else table, plan)
    changes = make_metadata_actions(table, becomes)
    if not changes:
        return planned
    if planned is None:  # the columns are added all the same
        return RowRewrite(
            table,
            "MERGE",
            {"predicate": parse_condition(plan.on).told},
            changes,
            WriterReads(),
            counts=RowCounts(),
        )
    return planned._replace(actions=[*changes, *planned.actions])


def _plan_rows(table: JobTable, plan: RowMerge) -> RowRewrite | None:
    only_inserts = all(clause.kind == NOT_MATCHED for clause in plan.clauses)
    if only_inserts:
        check_features(table.metadata)
    else:
        row_rewrite.check_changeable(table)
    for clause in plan.clauses:
        _check_identities(clause, table)
    if takes_all_columns(plan.clauses) and not plan.merge_schema:
        with explain_analysis():
            columns = plan.source.columns
        fields = table.schema.fields
        filled = [field.name for field in fields if has_generated_value(field)]
        check_source_columns(table.key, [field.name for field in fields], columns, filled)
    with nullcontext(plan.source) if only_inserts else hold_rows(plan.source) as source:
        pairs = MergePlan(table, source, parse_condition(plan.on), plan.clauses)
        return pairs.insert_unmatched() if only_inserts else pairs.rewrite_matched()


def _evolve_metadata(table: JobTable, plan: RowMerge) -> Metadata:
    """What the table is after the merge: it may get columns that clauses take from the source."""
    if not plan.merge_schema:
        return table.metadata
    with explain_analysis():
        data = from_spark_schema(plan.source.schema)
    if not takes_all_columns(plan.clauses):
        assigned_names = {name.strip("`").lower() for clause in plan.clauses for name in clause.values or ()}
        data = StructType(tuple(field for field in data.fields if field.name.lower() in assigned_names))
    case_sensitive = is_case_sensitive(plan.source.sparkSession)
    becomes = with_columns(table.metadata, data, case_sensitive=case_sensitive)
    check_names(becomes)
    return becomes


def _check_identities(clause: MergeClause, table: JobTable) -> None:
    """``UnsupportedFeature`` for a clause that inserts rows which the table would have to number."""
    for column in list_identity_columns(table.metadata) if clause.action == INSERT else ():
        raise UnsupportedFeature(
            f"a merge cannot insert rows into '{table.key}', which has an identity column "
            f"('{column.name}'): write new rows with penstock.spark.write",
            feature="identityColumns",
            column=column.name,
        )
