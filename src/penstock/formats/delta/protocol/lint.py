"""The check of a commit before it is ratified: would it leave a table that every reader understands?

An owner that ratifies whatever it is given lets one careless writer break the table for all. So every rule of
the protocol that can be seen from the actions and the table before them is looked at, and everything that is
wrong is told, with its line, not just the first. Nothing is read from storage here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, TypeVar

import msgspec

from penstock.formats.delta.errors import MalformedAction
from penstock.formats.delta.protocol.actions import (
    ACTION_NAMES,
    Action,
    Add,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
    Txn,
)
from penstock.formats.delta.protocol.clones import clone_sources
from penstock.formats.delta.protocol.clustering import (
    CLUSTERING,
    find_columns_without_statistics,
    parse_clustering,
)
from penstock.formats.delta.protocol.clustering import DOMAIN as CLUSTERING_DOMAIN
from penstock.formats.delta.protocol.column_mapping import stored_name
from penstock.formats.delta.protocol.feature_table import (
    DOMAIN_METADATA,
    FEATURES,
    IN_COMMIT_TIMESTAMP,
    MANAGED_COMMITS,
)
from penstock.formats.delta.protocol.features import (
    enabled_features,
    find_unlisted_features,
    find_unwritable_features,
    protocol_faults,
    supported_features,
)
from penstock.formats.delta.protocol.iceberg_compat import allows_vectors
from penstock.formats.delta.protocol.lint_files import ExpectedFiles, Fault, Lookup, Numbered, file_faults
from penstock.formats.delta.protocol.lint_lines import info_faults, read_lines
from penstock.formats.delta.protocol.lint_metadata import metadata_faults
from penstock.formats.delta.protocol.properties import (
    APPEND_ONLY,
    ICEBERG_COMPAT,
    MATERIALIZE_PARTITIONS,
    MATERIALIZED_PARTITIONS,
    iceberg_version,
    is_on,
)
from penstock.formats.delta.protocol.row_ids import ENABLED as ROW_TRACKING_ENABLED
from penstock.formats.delta.protocol.row_ids import (
    ID_COLUMN,
    SUSPENDED,
    VERSION_COLUMN,
    assigns_row_ids,
    has_row_tracking,
)
from penstock.formats.rows.schema import Field, StructType, parse_schema

OWNER_NAME: Final = "delta.managedCommitOwnerName"
TIMESTAMPS: Final = "delta.enableInCommitTimestamps"
ENABLED_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
ENABLED_TIMESTAMP: Final = "delta.inCommitTimestampEnablementTimestamp"

AHEAD_MAX_MS: Final = 60 * 60 * 1000
"""How far a writer's clock may be ahead of the owner's: its time is the least that all later commits have."""

PROBLEMS_MAX: Final = 1000
"""Who has so many to mend does not need more, and finding them takes time that others wait."""

WHOLE_COMMIT: Final = 0
"""The line of what is wrong with a commit as a whole."""


class LintState(msgspec.Struct, frozen=True, kw_only=True):
    """The table before a commit. Without arguments: there is no table yet."""

    version: int = -1
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    timestamp_ms: int | None = None
    """The in-commit timestamp of the version, or where it has none the time of its file, if that is known."""
    live: Lookup | None = None
    """Tells which paths are files of the table; without it, removes are believed."""
    clustering: tuple[tuple[str, ...], ...] = ()
    """The columns that the table is clustered by, as files call them; empty if the files of the commit are
    known to have statistics of them."""
    is_writable: bool = False
    """Known to be a table that Penstock writes, so that this is not found out again for each commit."""


class LintRules(msgspec.Struct, frozen=True, kw_only=True):
    """What is not the same for all commits."""

    absolute_paths: bool = False
    now_ms: int | None = None
    """The owner's clock. A commit that comes from far ahead of it is refused; ``None``: from anywhere."""
    droppable: frozenset[str] = frozenset()
    """Features that this commit may drop: that of managed commits, when a table is handed back."""


class LintProblem(msgspec.Struct, frozen=True, order=True):
    """One thing that is wrong."""

    line: int
    """From 1; ``WHOLE_COMMIT`` if no line is to blame."""
    action: str
    """The action's name in the log, empty where there is none."""
    reason: str

    def __str__(self) -> str:
        if self.line == WHOLE_COMMIT:
            return self.reason
        return f"line {self.line}{', ' + self.action if self.action else ''}: {self.reason}"


def check_bytes(data: bytes, before: LintState, rules: LintRules = LintRules()) -> tuple[LintProblem, ...]:
    """As ``check_commit``, for the bytes of a commit, whose lines may not even be actions.

    Where a line cannot be read, rules that depend on the whole commit may tell of what only that line lacks.
    """
    faults: list[Fault] = []
    lines = read_lines(data, faults)
    actions = [(line.number, line.action) for line in lines if line.action is not None]
    unread = (LintProblem(number, "", reason) for number, reason in faults)
    return tuple(sorted((*unread, *check_commit(actions, before, rules))))


def check_commit(
    actions: Iterable[Numbered], before: LintState, rules: LintRules = LintRules()
) -> tuple[LintProblem, ...]:
    """Everything that is wrong with a commit of these actions on top of a table, in the order of the lines.

    Each action comes with its number, which is what a problem names. No problem means that the commit may be
    ratified, as far as its actions tell; that the data files exist and hold what is said is not known here.
    """
    commit = _LintedCommit(tuple(actions), before, rules)
    faults: set[Fault] = set()
    for rule in _RULES:
        faults.update(islice(rule(commit), PROBLEMS_MAX))
    if not faults:
        return ()
    if len(faults) >= PROBLEMS_MAX:
        faults.add((WHOLE_COMMIT, f"only the first {PROBLEMS_MAX} problems of each kind are shown"))
    names = {line: ACTION_NAMES[type(action)] for line, action in commit.actions}
    return tuple(sorted(LintProblem(line, names.get(line, ""), reason) for line, reason in faults))


_Kind = TypeVar("_Kind", bound=Action)


class _LintedCommit:
    """A commit with what its rules ask for: the table before it, and what it would be afterwards."""

    def __init__(self, actions: Sequence[Numbered], before: LintState, rules: LintRules) -> None:
        self.actions, self.before, self.rules = actions, before, rules
        protocols, metadata = self.list_actions(Protocol), self.list_actions(Metadata)
        self.protocol_line, self.protocol = protocols[-1] if protocols else (WHOLE_COMMIT, before.protocol)
        self.metadata_line, self.metadata = metadata[-1] if metadata else (WHOLE_COMMIT, before.metadata)
        self.features = frozenset() if self.protocol is None else supported_features(self.protocol)
        self.schema = None if self.metadata is None else _parse_schema(self.metadata.schema_string)
        self.configuration: Mapping[str, str] = {} if self.metadata is None else self.metadata.configuration

    def list_actions(self, kind: type[_Kind]) -> list[tuple[int, _Kind]]:
        return [(line, action) for line, action in self.actions if isinstance(action, kind)]

    @property
    def changes_table(self) -> bool:
        """Whether the table's protocol or metadata is touched; if not, they were checked when they came."""
        return bool(self.protocol_line or self.metadata_line)


def _find_repeated_actions(commit: _LintedCommit) -> Iterator[Fault]:
    if not commit.actions:
        yield WHOLE_COMMIT, "the commit contains no action"
    for kind in (Protocol, Metadata, CommitInfo):
        actions = commit.list_actions(kind)
        for line, _ in actions[1:]:
            yield (
                line,
                (
                    f"a commit can have at most one '{ACTION_NAMES[kind]}'; line {actions[0][0]} already has "
                    "one"
                ),
            )
    yield from _find_repeated_names(
        [(line, txn.app_id) for line, txn in commit.list_actions(Txn)], "the application"
    )
    yield from _find_repeated_names(
        [(line, domain.domain) for line, domain in commit.list_actions(DomainMetadata)], "the domain"
    )
    for line, action in commit.actions:
        if isinstance(action, CheckpointMetadata | Sidecar):
            yield line, "it can only be in checkpoints, not in commits"


def _find_repeated_names(named: Collection[tuple[int, str]], subject: str) -> Iterator[Fault]:
    seen: dict[str, int] = {}
    for line, name in named:
        if seen.setdefault(name, line) != line:
            yield line, f"{subject} '{name}' is already in line {seen[name]}"


def _lint_first_commit(commit: _LintedCommit) -> Iterator[Fault]:
    if commit.protocol is None:
        yield WHOLE_COMMIT, "the first commit of a table needs a 'protocol'"
    if commit.metadata is None:
        yield WHOLE_COMMIT, "the first commit of a table needs a 'metaData'"


def _check_protocol(commit: _LintedCommit) -> Iterator[Fault]:
    if commit.protocol is None:
        return
    if commit.protocol_line:
        for reason in protocol_faults(commit.protocol, commit.before.protocol, commit.rules.droppable):
            yield commit.protocol_line, reason
    if commit.metadata is None or commit.schema is None:
        return
    if commit.before.is_writable and not commit.changes_table:
        return
    had = frozenset() if commit.before.protocol is None else supported_features(commit.before.protocol)
    for refusal in find_unwritable_features(commit.protocol, commit.metadata):
        # What the table had already was put to use by the metadata, if by anything in this commit.
        came_with_protocol = refusal.feature not in had or not commit.metadata_line
        yield commit.protocol_line if came_with_protocol else commit.metadata_line, f"the feature {refusal}"
    if commit.changes_table:
        yield from _lint_unlisted_features(commit, commit.metadata)


def _lint_unlisted_features(commit: _LintedCommit, metadata: Metadata) -> Iterator[Fault]:
    """Features that the commit enables without listing them. Ones that were enabled before are no fault of
    it."""
    old_metadata = commit.before.metadata
    already = (
        frozenset()
        if old_metadata is None or _parse_schema(old_metadata.schema_string) is None
        else enabled_features(old_metadata)
    )
    assert commit.protocol is not None  # as whoever asks has found out
    for name in sorted(find_unlisted_features(commit.protocol, metadata) - already):
        line = commit.metadata_line or commit.protocol_line
        yield line, f"the table uses '{name}', but its protocol lacks the feature"


def _check_metadata(commit: _LintedCommit) -> Iterator[Fault]:
    if commit.metadata is not None and commit.metadata_line:
        for reason in metadata_faults(commit.metadata, commit.before.metadata):
            yield commit.metadata_line, reason


def _check_commit_infos(commit: _LintedCommit) -> Iterator[Fault]:
    for line, info in commit.list_actions(CommitInfo)[:1]:  # a second one is a fault itself
        for reason in info_faults(info):
            yield line, reason


def _check_timestamps(commit: _LintedCommit) -> Iterator[Fault]:
    for line, txn in commit.list_actions(Txn):
        if txn.last_updated is not None and txn.last_updated < 0:
            yield line, f"'lastUpdated' must not be negative, got {txn.last_updated}"
    if not _is_timed(commit.features, commit.configuration):
        return
    line, info = commit.actions[0] if commit.actions else (WHOLE_COMMIT, None)
    previous = commit.before.timestamp_ms
    # Readers look for the timestamp in the very first line, before they know what any other one is.
    if not isinstance(info, CommitInfo) or line != 1:
        yield line, "the table has in-commit timestamps, so a 'commitInfo' must come first, in line 1"
        return
    time = info.in_commit_timestamp
    if time is None:
        yield line, "'inCommitTimestamp' is missing, but the table has in-commit timestamps"
    elif time < 0:
        yield line, f"'inCommitTimestamp' must not be negative, got {time}"
    elif previous is not None and time <= previous:
        yield line, f"'inCommitTimestamp' must be later than {previous}, got {time}"
    elif _is_ahead(time, previous, commit.rules.now_ms):
        ahead = f"more than an hour ahead of the owner's clock, which says {commit.rules.now_ms}"
        mend = "set the writer's clock, or leave the time to the owner"
        yield line, f"'inCommitTimestamp' is {time}, {ahead}: {mend}"
    else:
        yield from _lint_timestamp_start(commit, time)


def _is_ahead(time: int, previous: int | None, now_ms: int | None) -> bool:
    """A table that is ahead itself, from the time before it had this owner, leaves its writers no choice."""
    if now_ms is None:
        return False
    return time > max(now_ms, (previous or 0) + 1) + AHEAD_MAX_MS


def _lint_timestamp_start(commit: _LintedCommit, time: int) -> Iterator[Fault]:
    """A table that had versions without timestamps says from where on it has them."""
    state_before, version = commit.before, commit.before.version + 1
    if state_before.protocol is None or state_before.metadata is None:
        return
    if _is_timed(supported_features(state_before.protocol), state_before.metadata.configuration):
        return
    for name, expected_value in ((ENABLED_VERSION, version), (ENABLED_TIMESTAMP, time)):
        if commit.configuration.get(name) != str(expected_value):
            line = commit.metadata_line or commit.protocol_line
            yield line, f"the commit turns in-commit timestamps on, so '{name}' must be '{expected_value}'"


def _lint_managed_table(commit: _LintedCommit) -> Iterator[Fault]:
    """A managed table names its owner and has in-commit timestamps. (The reverse is a matter of features.)"""
    line = commit.metadata_line or commit.protocol_line
    if MANAGED_COMMITS not in commit.features or not commit.changes_table:
        return
    if OWNER_NAME not in commit.configuration:
        yield line, f"the table has the feature '{MANAGED_COMMITS}', but no property '{OWNER_NAME}'"
    if not _is_timed(commit.features, commit.configuration):
        yield line, f"the feature '{MANAGED_COMMITS}' needs in-commit timestamps: set '{TIMESTAMPS}' to true"


def _check_domains(commit: _LintedCommit) -> Iterator[Fault]:
    if DOMAIN_METADATA not in commit.features:
        for line, _ in commit.list_actions(DomainMetadata):
            yield line, f"the table would need the feature '{DOMAIN_METADATA}'"
    for name in sorted(commit.features & FEATURES.keys()) if commit.changes_table else ():
        for required in FEATURES[name].requires:
            if required not in commit.features:
                yield commit.protocol_line, f"the feature '{name}' needs the feature '{required}'"


def _lint_partition_columns(commit: _LintedCommit) -> Iterator[Fault]:
    """Writers of files know the properties of a table alone."""
    if MATERIALIZE_PARTITIONS not in commit.features or not commit.changes_table:
        return
    if not is_on(commit.configuration, MATERIALIZED_PARTITIONS):
        line = commit.metadata_line or commit.protocol_line
        yield line, f"the feature '{MATERIALIZE_PARTITIONS}' needs '{MATERIALIZED_PARTITIONS}' set to true"


def _check_clustering(commit: _LintedCommit) -> Iterator[Fault]:
    """Files of a clustered table have statistics of the columns that it is clustered by."""
    if CLUSTERING not in commit.features:
        return
    if commit.changes_table and commit.metadata is not None and commit.metadata.partition_columns:
        yield commit.metadata_line or commit.protocol_line, "a table cannot be both partitioned and clustered"
    columns = commit.before.clustering
    for _, domain in commit.list_actions(DomainMetadata):
        if domain.domain == CLUSTERING_DOMAIN and commit.before.protocol is None:
            columns = parse_clustering(domain.configuration)
    for line, add in commit.list_actions(Add) if columns else ():
        for path in find_columns_without_statistics(add, columns):
            name = ".".join(path)
            yield line, f"the table is clustered by '{name}', but 'stats' has no 'nullCount' of that column"


def _lint_row_id_columns(commit: _LintedCommit) -> Iterator[Fault]:
    """A table that tracks rows names the columns for ids, which no column of its own is called."""
    metadata = commit.metadata
    if metadata is None or not commit.metadata_line or not has_row_tracking(metadata):
        return
    line, configuration = commit.metadata_line, metadata.configuration
    if is_on(configuration, SUSPENDED):
        yield line, f"'{SUSPENDED}' and '{ROW_TRACKING_ENABLED}' cannot both be true"
    fields = () if commit.schema is None else commit.schema.fields
    names = {stored_name(field).lower() for field in fields}
    for name in (ID_COLUMN, VERSION_COLUMN):
        column = configuration.get(name)
        if not column:
            yield (
                line,
                f"the table tracks rows, so the property '{name}' must be the name of a column in its files",
            )
        elif column.lower() in names:
            yield line, f"'{name}' is '{column}', but the table already has a column of that name"
    before = commit.before.metadata
    if before is not None and has_row_tracking(before):
        for name in (ID_COLUMN, VERSION_COLUMN):
            if before.configuration.get(name) not in (None, configuration.get(name)):
                yield line, f"'{name}' cannot change, because files have that column"


def _lint_append_only(commit: _LintedCommit) -> Iterator[Fault]:
    """The table as it was found decides: nobody opens the gate and walks through it in one commit."""
    old_metadata = commit.before.metadata
    if old_metadata is not None and is_on(old_metadata.configuration, APPEND_ONLY):
        for line, remove in commit.list_actions(Remove):
            if remove.data_change:
                yield line, f"the table is append-only, but '{remove.path}' is removed with 'dataChange' true"


def _check_files(commit: _LintedCommit) -> Iterator[Fault]:
    if commit.schema is not None and not commit.schema.fields:
        for line, _ in commit.list_actions(Add):
            yield line, "the table has no columns yet, so it can hold no file"
    version = iceberg_version(commit.configuration)
    expected = ExpectedFiles(
        partitions=_read_partition_fields(commit.metadata),
        partitions_before=_read_partition_fields(commit.before.metadata),
        features=commit.features,
        absolute_paths=commit.rules.absolute_paths or _is_first_version_of_clone(commit),
        live=commit.before.live,
        needs_row_counts=_needs_row_counts(commit),
        iceberg=None if version is None else ICEBERG_COMPAT[version],
        has_vectors=commit.metadata is None or allows_vectors(commit.metadata),
    )
    yield from file_faults(commit.actions, expected)


def _is_first_version_of_clone(commit: _LintedCommit) -> bool:
    """Whether it is the first version of a clone, which the owner itself writes."""
    return commit.before.metadata is None and bool(clone_sources(commit.configuration))


_RULES: Final = (
    _find_repeated_actions,
    _lint_first_commit,
    _check_protocol,
    _check_metadata,
    _check_commit_infos,
    _check_timestamps,
    _lint_managed_table,
    _check_domains,
    _lint_partition_columns,
    _check_clustering,
    _lint_row_id_columns,
    _lint_append_only,
    _check_files,
)


def _needs_row_counts(commit: _LintedCommit) -> bool:
    protocol, metadata = commit.protocol, commit.metadata
    return protocol is not None and metadata is not None and assigns_row_ids(protocol, metadata)


def _is_timed(features: frozenset[str], configuration: Mapping[str, str]) -> bool:
    return IN_COMMIT_TIMESTAMP in features and is_on(configuration, TIMESTAMPS)


def _read_partition_fields(metadata: Metadata | None) -> Mapping[str, Field] | None:
    schema = None if metadata is None else _parse_schema(metadata.schema_string)
    if metadata is None or schema is None:
        return None
    columns = {
        stored_name(field): field for field in schema.fields if field.name in metadata.partition_columns
    }
    return columns if len(columns) == len(metadata.partition_columns) else None


@lru_cache(maxsize=64)
def _parse_schema(text: str) -> StructType | None:
    """Cached, because a busy table asks for the same schema with every commit. A broken one is told once."""
    try:
        return parse_schema(text)
    except MalformedAction:
        return None
