"""Changing what a Delta table is: its properties, columns, constraints, defaults, description.

Each change is one version without rows, and one commit. Decisions are made from what the table is at that
moment: ``TableConflict`` if others changed it meanwhile, by the rules that Delta has for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Unpack

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.branch_log.ownership import protected_changes
from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.lake.calls import CommitTables, GetTableVersions, WriterReads
from penstock.formats.delta.lake.column_ids import reserve_column_ids
from penstock.formats.delta.lake.table import find_earlier_result, table_commit
from penstock.formats.delta.protocol import column_changes, property_changes
from penstock.formats.delta.protocol.actions import Action, CommitInfo, Metadata, Protocol
from penstock.formats.delta.protocol.clustering import (
    CLUSTERING,
    find_columns,
    find_columns_without_statistics,
    make_clustering_domain,
)
from penstock.formats.delta.protocol.column_mapping import find_forbidden_mapping_changes, stored_name
from penstock.formats.delta.protocol.column_rules import Constraint
from penstock.formats.delta.protocol.features import (
    add_required_features,
    complete_protocol,
    find_unwritable_features,
    with_features,
)
from penstock.formats.delta.protocol.iceberg_compat import allows_vectors
from penstock.formats.delta.protocol.lint_metadata import metadata_faults
from penstock.formats.delta.protocol.properties import is_on
from penstock.formats.delta.protocol.wider_types import ENABLED as WIDENING
from penstock.formats.rows.schema import parse_schema
from penstock.lake import calls
from penstock.lake.call import CommitOptions
from penstock.lake.row_input import write_schema_text

if TYPE_CHECKING:
    from penstock.formats.delta.lake.snapshot import TableSnapshot
    from penstock.lake.answers import TableCommitResult
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table
    from penstock.model.keys import Key

ColumnPath: TypeAlias = str | Sequence[str]
"""A column by its name, or a part of one by its path: ``["address", "city"]``."""


class AlterOptions(CommitOptions, total=False):
    """What a program may say with a change of a table."""

    branch: str | None
    """The branch whose table is changed; the default one, if nothing is given."""


class AlteredTable(msgspec.Struct, frozen=True, kw_only=True):
    """What a table is to become."""

    metadata: Metadata
    features: frozenset[str] = frozenset()
    """Features that its protocol is to list besides those that the metadata enables."""
    actions: tuple[Action, ...] = ()
    """What else is committed."""
    reads: WriterReads = WriterReads()


TableChange: TypeAlias = "Callable[[Metadata, Callable[[], TableSnapshot]], AlteredTable]"
"""Decides from a table's metadata, and from its rows if it needs them, what it becomes."""
_WHOLE: Final = WriterReads(whole_table=True)


class TableAlterations:
    """Changes of what the Delta tables of a lake are.

    A column is named by itself, and a part of one by its path: ``["address", "city"]``. Each change is one
    commit on a branch; ``TableConflict`` if the table was changed by others meanwhile.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    # -- properties ----------------------------------------------------------------------------------------

    def set_properties(
        self, key: str | Key, properties: Mapping[str, str], **said: Unpack[AlterOptions]
    ) -> TableCommitResult:
        """Set properties of a table. Those that turn a feature on list it in the table's protocol.

        ``delta.feature.<name>`` = ``supported`` lists a feature and sets no property. ``InvalidRequest`` or
        ``UnsupportedFeature`` name a property that cannot be set, or a value that it cannot have.
        """
        texts = {name: _write_property(value) for name, value in properties.items()}
        features = property_changes.asked_features(texts)

        def alter_metadata(metadata: Metadata, snapshot: Callable[[], TableSnapshot]) -> AlteredTable:
            changed = property_changes.set_properties(metadata, texts)
            if allows_vectors(changed) or not allows_vectors(metadata):
                return AlteredTable(metadata=changed, features=features)
            _check_no_vectors(snapshot())
            return AlteredTable(metadata=changed, features=features, reads=_WHOLE)

        return self._alter_table(
            key, alter_metadata, "SET TBLPROPERTIES", {"properties": _encode_json(texts)}, said
        )

    def unset_properties(
        self, key: str | Key, names: Iterable[str], *, if_exists: bool = False, **said: Unpack[AlterOptions]
    ) -> TableCommitResult:
        """Remove properties of a table. Features that they turned on stay listed."""
        property_names = (names,) if isinstance(names, str) else tuple(names)

        def alter_metadata(metadata: Metadata, _: Any) -> AlteredTable:
            changed = property_changes.unset_properties(metadata, property_names, if_exists=if_exists)
            return AlteredTable(metadata=changed)

        parameters = {"properties": _encode_json(property_names), "ifExists": _encode_json(if_exists)}
        return self._alter_table(key, alter_metadata, "UNSET TBLPROPERTIES", parameters, said)

    def set_description(
        self, key: str | Key, description: str | None, **said: Unpack[AlterOptions]
    ) -> TableCommitResult:
        """Say what a table is for; nothing removes what was said."""

        def alter_metadata(metadata: Metadata, _: Any) -> AlteredTable:
            return AlteredTable(metadata=msgspec.structs.replace(metadata, description=description or None))

        parameters = {"properties": _encode_json({"comment": description or ""})}
        return self._alter_table(key, alter_metadata, "SET TBLPROPERTIES", parameters, said)

    # -- constraints ---------------------------------------------------------------------------------------

    def add_constraint(
        self, key: str | Key, name: str, expression: str, **said: Unpack[AlterOptions]
    ) -> TableCommitResult:
        """Add a CHECK constraint: a condition that is true for every row.

        Rows that are there are read and checked first. ``InvalidRequest`` shows one for which it is not true,
        ``UnsupportedFeature`` says that the condition cannot be evaluated without Spark.
        """
        constraint = Constraint(name, expression)

        def alter_metadata(metadata: Metadata, snapshot: Callable[[], TableSnapshot]) -> AlteredTable:
            changed = property_changes.add_constraint(metadata, constraint)
            _load_checks().check_constraint(metadata, constraint, lambda names: snapshot().to_batches(names))
            return AlteredTable(metadata=changed, reads=_WHOLE)

        return self._alter_table(
            key, alter_metadata, "ADD CONSTRAINT", {"name": name, "expr": expression}, said
        )

    def drop_constraint(
        self, key: str | Key, name: str, *, if_exists: bool = False, **said: Unpack[AlterOptions]
    ) -> TableCommitResult:
        """Drop a CHECK constraint."""

        def alter_metadata(metadata: Metadata, _: Any) -> AlteredTable:
            return AlteredTable(
                metadata=property_changes.drop_constraint(metadata, name, if_exists=if_exists)
            )

        return self._alter_table(key, alter_metadata, "DROP CONSTRAINT", {"name": name}, said)

    # -- columns -------------------------------------------------------------------------------------------

    def add_columns(self, key: str | Key, schema: Any, **said: Unpack[AlterOptions]) -> TableCommitResult:
        """Add columns to a table; in rows that are there they are null.

        ``schema`` has the new columns, as Arrow or Delta spell them. Columns that are added on two branches
        are both there after a merge, unless they have the same name.
        """
        columns = parse_schema(write_schema_text(schema))

        def alter_metadata(metadata: Metadata, _: Any) -> AlteredTable:
            return AlteredTable(metadata=column_changes.add_columns(metadata, columns))

        added = [{"column": msgspec.to_builtins(field)} for field in columns.fields]
        return self._alter_table(key, alter_metadata, "ADD COLUMNS", {"columns": _encode_json(added)}, said)

    def rename_column(
        self, key: str | Key, column: ColumnPath, name: str, **said: Unpack[AlterOptions]
    ) -> TableCommitResult:
        """Give a column of a table with mapped columns another name; no file is written anew.

        ``InvalidRequest`` if the columns are not mapped, or something names the column: a constraint, a
        generated column.
        """
        path = _parse_column_path(column)

        def alter_metadata(metadata: Metadata, _: Any) -> AlteredTable:
            return AlteredTable(metadata=column_changes.rename_column(metadata, path, name))

        parameters = {"oldColumnPath": ".".join(path), "newColumnPath": ".".join((*path[:-1], name))}
        return self._alter_table(key, alter_metadata, "RENAME COLUMN", parameters, said)

    def drop_column(
        self, key: str | Key, column: ColumnPath, **said: Unpack[AlterOptions]
    ) -> TableCommitResult:
        """Drop a column of a table with mapped columns.

        Its values stay in files, where nobody reads them, until these are rewritten: ``lake.erase`` does so.
        As ``rename_column``; a column that the table is partitioned or clustered by stays.
        """
        path = _parse_column_path(column)

        def alter_metadata(metadata: Metadata, snapshot: Callable[[], TableSnapshot]) -> AlteredTable:
            clustering = snapshot().clustering
            return AlteredTable(metadata=column_changes.drop_column(metadata, path, clustering))

        return self._alter_table(
            key, alter_metadata, "DROP COLUMNS", {"columns": _encode_json([".".join(path)])}, said
        )

    def comment_column(
        self, key: str | Key, column: ColumnPath, comment: str | None, **said: Unpack[AlterOptions]
    ) -> TableCommitResult:
        """Say what a column is; nothing removes what was said."""
        return self._change_column(
            key, column, lambda about, path: column_changes.comment_column(about, path, comment), said
        )

    def move_column(
        self, key: str | Key, column: ColumnPath, *, after: str | None = None, **said: Unpack[AlterOptions]
    ) -> TableCommitResult:
        """Have a column stand after another one, or before all. No file is written anew."""
        return self._change_column(
            key, column, lambda about, path: column_changes.move_column(about, path, after), said
        )

    def set_default(
        self, key: str | Key, column: ColumnPath, expression: str, **said: Unpack[AlterOptions]
    ) -> TableCommitResult:
        """Give a column a default, for rows that are written without it later: an expression in SQL.

        ``InvalidRequest`` if its value cannot be one of the column's. Rows that are there do not change.
        """

        def alter_metadata(metadata: Metadata, path: Sequence[str]) -> Metadata:
            changed = column_changes.set_default(metadata, path, expression)
            _load_checks().check_default(column_changes.find_column(metadata, path), expression)
            return changed

        return self._change_column(key, column, alter_metadata, said)

    def drop_default(
        self, key: str | Key, column: ColumnPath, **said: Unpack[AlterOptions]
    ) -> TableCommitResult:
        """Drop the default of a column."""
        return self._change_column(
            key, column, lambda about, path: column_changes.set_default(about, path, None), said
        )

    def set_not_null(
        self, key: str | Key, column: ColumnPath, **said: Unpack[AlterOptions]
    ) -> TableCommitResult:
        """Have a column take no nulls. ``InvalidRequest`` shows a row that has one, if there is any."""
        path = _parse_column_path(column)

        def alter_metadata(metadata: Metadata, snapshot: Callable[[], TableSnapshot]) -> AlteredTable:
            changed = column_changes.set_nullable(metadata, path, nullable=False)
            name = column_changes.find_column(metadata, path).name
            quoted = name.replace("`", "``")
            for batch in snapshot().to_batches(where=f"`{quoted}` is null"):
                for row in batch.slice(0, 1).to_pylist():
                    raise InvalidRequest(
                        f"the column '{name}' cannot be NOT NULL: it is null in a row with "
                        f"{_format_row(row)}",
                        column=name,
                    )
            return AlteredTable(metadata=changed, reads=_WHOLE)

        return self._alter_table(key, alter_metadata, "CHANGE COLUMN", {"column": ".".join(path)}, said)

    def drop_not_null(
        self, key: str | Key, column: ColumnPath, **said: Unpack[AlterOptions]
    ) -> TableCommitResult:
        """Have a column take nulls."""
        return self._change_column(
            key, column, lambda about, path: column_changes.set_nullable(about, path, nullable=True), said
        )

    def widen_column(
        self,
        key: str | Key,
        column: ColumnPath,
        type: str,  # noqa: A002
        **said: Unpack[AlterOptions],
    ) -> TableCommitResult:
        """Give a column a wider type, by its name in Delta or SQL: ``long``, ``decimal(20,2)``.

        No file is written anew: readers widen the values of those that are there. ``element``, ``key`` and
        ``value`` in a path are the insides of arrays and maps. ``InvalidRequest`` if the type is not wider,
        and unless the table's property ``delta.enableTypeWidening`` is ``true``.
        """

        def alter_metadata(metadata: Metadata, path: Sequence[str]) -> Metadata:
            if not is_on(metadata.configuration, WIDENING):
                raise InvalidRequest(
                    f"to widen the type of a column, set the property '{WIDENING}' of the table to 'true' "
                    "first. Readers must then support the feature",
                    property=WIDENING,
                )
            return column_changes.widen_column(metadata, path, type)

        return self._change_column(key, column, alter_metadata, said)

    def cluster_by(
        self, key: str | Key, columns: str | Sequence[str], **said: Unpack[AlterOptions]
    ) -> TableCommitResult:
        """Have a table clustered by other columns, or by none: engines that cluster files do that by them.

        ``InvalidRequest`` if the table is partitioned, or files have no statistics of a column: they cannot
        be clustered by it.
        """
        names = (columns,) if isinstance(columns, str) else tuple(columns)

        def alter_metadata(metadata: Metadata, snapshot: Callable[[], TableSnapshot]) -> AlteredTable:
            if metadata.partition_columns and names:
                raise InvalidRequest("the table is partitioned, so it cannot be clustered")
            fields = find_columns(parse_schema(metadata.schema_string), names)
            paths = [tuple(map(stored_name, field)) for field in fields]
            for file in snapshot().files():
                for path in find_columns_without_statistics(file, paths):
                    name = names[paths.index(path)]
                    raise InvalidRequest(
                        f"the table cannot be clustered by '{name}': its file {file.path} has no "
                        "statistics of the column\n  Add the column to the property "
                        "'delta.dataSkippingStatsColumns', then compute the statistics: "
                        "lake.table(…).analyze().",
                        column=name,
                    )
            features = frozenset({CLUSTERING, "domainMetadata"})
            return AlteredTable(
                metadata=metadata, features=features, actions=(make_clustering_domain(paths),)
            )

        return self._alter_table(
            key, alter_metadata, "CLUSTER BY", {"newClusteringColumns": ",".join(names)}, said
        )

    # -- any of them ---------------------------------------------------------------------------------------

    def _change_column(
        self,
        key: str | Key,
        column: ColumnPath,
        change: Callable[[Metadata, Sequence[str]], Metadata],
        options: AlterOptions,
    ) -> TableCommitResult:
        path = _parse_column_path(column)
        return self._alter_table(
            key,
            lambda metadata, _: AlteredTable(metadata=change(metadata, path)),
            "CHANGE COLUMN",
            {"column": ".".join(path)},
            options,
        )

    def _alter_table(
        self,
        key: str | Key,
        change: TableChange,
        operation: str,
        parameters: dict[str, Any],
        options: AlterOptions,
    ) -> TableCommitResult:
        table = self._lake.table(key, options.get("branch"))
        branch = table.require_branch()
        key_given = options.get("idempotency_key")
        if (before := find_earlier_result(self._lake, [table.key], branch, key_given)) is not None:
            return before
        now = self._lake.do(GetTableVersions(key=table.key, at=branch, limit=0))
        protocol, metadata = now.parse_declared()
        altered = change(metadata, lambda: table.outside_read_set.snapshot(now.latest_version))
        numbered = reserve_column_ids(self._lake, table.key, branch, metadata, altered.metadata)
        altered = msgspec.structs.replace(altered, metadata=numbered)
        needed = complete_protocol(protocol, altered.metadata)
        needed = with_features(needed, add_required_features(altered.features))
        _check_altered(table, metadata, needed, altered.metadata)
        state: list[Action] = [] if needed == protocol else [needed]
        if altered.metadata != metadata or not (state or altered.actions):
            state.append(altered.metadata)
        info = CommitInfo({"operation": operation, "operationParameters": parameters})
        commit = msgspec.structs.replace(
            table_commit(table, [info, *state, *altered.actions]),
            table=now.id,
            read_version=now.latest_version,
            read_tip=now.tip,
            reads=altered.reads,
        )
        return self._lake.do(
            CommitTables(
                tables=(commit,),
                branch=branch,
                said=calls.describe_commit(
                    options.get("message") or f"alter {table.key}", options.get("author")
                ),
                idempotency_key=key_given,
                who=self._lake.author,
            )
        )


def _check_altered(table: Table, before: Metadata, protocol: Protocol, after: Metadata) -> None:
    """``InvalidRequest`` or ``UnsupportedFeature`` for a table that the lake would not write."""
    for name in protected_changes(before, after):
        raise InvalidRequest(
            f"the property '{name}' of '{table.key}' can only change with the owner of the table",
            property=name,
        )
    faults = [*metadata_faults(after, before), *find_forbidden_mapping_changes(before, after)]
    if faults:
        raise InvalidRequest(f"'{table.key}' cannot be changed in this way: {'; '.join(faults)}")
    for refusal in find_unwritable_features(protocol, after):
        raise UnsupportedFeature(
            f"'{table.key}' cannot be changed in this way: {refusal}", feature=refusal.feature
        )


def _check_no_vectors(snapshot: TableSnapshot) -> None:
    """``InvalidRequest`` if a file has a deletion vector, which Iceberg would not see."""
    for file in snapshot.files():
        if file.deletion_vector is not None:
            raise InvalidRequest(
                f"the file {file.path} has a deletion vector, which a table for Iceberg must not have\n"
                "  Rewrite such files first: lake.table(…).optimize()."
            )


def _load_checks() -> Any:
    """What needs Arrow, imported when it is needed."""
    from penstock.formats.delta.rows import alteration_checks

    return alteration_checks


def _parse_column_path(column: ColumnPath) -> tuple[str, ...]:
    path = (column,) if isinstance(column, str) else tuple(column)
    if not path or not all(path):
        raise InvalidRequest("a column needs a name")
    return path


def _write_property(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _format_row(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in row.items())


def _encode_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
