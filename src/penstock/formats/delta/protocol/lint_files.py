"""The part of the check of a commit that looks at its files: adds, removes and files of the change feed."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote

import msgspec
from msgspec.structs import replace

from penstock.formats.delta.protocol.actions import Action, Add, Cdc, DeletionVector, FileKey, Remove, Values
from penstock.formats.delta.protocol.feature_table import ROW_TRACKING
from penstock.formats.delta.protocol.names import LOG
from penstock.formats.rows.partition_values import parse_value
from penstock.formats.rows.schema import Field
from penstock.storage.places import SCRATCH

Lookup: TypeAlias = Callable[[Collection[str]], Mapping[str, str | None]]
"""Of some decoded paths, those that are files of the table, each with the identity of its deletion vector."""

Numbered: TypeAlias = tuple[int, Action]
Fault: TypeAlias = tuple[int, str]
"""The line of an action, and what is wrong with it."""

VECTORS: Final = "deletionVectors"
"""The feature by which files can have deletion vectors."""
_INT32_MAX: Final = 2**31 - 1
_VECTOR_NAME_MIN: Final = 20
"""The length of a UUID in a deletion vector, which a prefix may precede."""


class ExpectedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What the table expects of its files."""

    partitions: Mapping[str, Field] | None
    """The partition columns by name; ``None`` if the schema is broken, which is told elsewhere."""
    partitions_before: Mapping[str, Field] | None
    """Those of the files that are there already, and may be removed: a commit can change the partitioning."""
    features: frozenset[str]
    absolute_paths: bool = False
    """Whether files may lie elsewhere, as the first ones of a clone do, and those that come back to one."""
    live: Lookup | None = None
    """``None`` if nobody can look: then removes are believed."""
    needs_row_counts: bool = False
    """Whether rows of new files get ids."""
    iceberg: str | None = None
    """The property by which files suit Iceberg, too."""
    has_vectors: bool = True
    """Whether new files may have deletion vectors."""


def file_faults(actions: Sequence[Numbered], expected: ExpectedFiles) -> Iterator[Fault]:
    """Everything that is wrong with the files of a commit."""
    elsewhere = _find_known_addresses(actions, expected)
    for line, action in actions:
        if isinstance(action, Add | Remove | Cdc):
            is_known = isinstance(action, Add) and action.key in elsewhere
            rules = replace(expected, absolute_paths=True) if is_known else expected
            for reason in _find_faults(action, rules):
                yield line, reason
    yield from _lint_repeated_files(actions)
    if expected.live is not None:
        yield from _find_removes_without_file(actions, expected, expected.live)


def _find_known_addresses(actions: Sequence[Numbered], expected: ExpectedFiles) -> set[FileKey]:
    """Of the files that a commit adds by their whole addresses, those that the table has: as they are, or to
    be added with another deletion vector of its own."""
    added = [action for _, action in actions if isinstance(action, Add) and has_whole_address(action)]
    if not added or expected.live is None:
        return set()
    live = expected.live({action.key.path for action in added})
    return {
        action.key
        for action in added
        if action.key.path in live
        and (not has_whole_vector(action.deletion_vector) or live[action.key.path] == action.key.vector)
    }


def has_whole_address(add: Add) -> bool:
    """Whether a file, or its deletion vector, is named by a whole address, as files of a clone are."""
    return _ABSOLUTE.match(add.path) is not None or has_whole_vector(add.deletion_vector)


def has_whole_vector(vector: DeletionVector | None) -> bool:
    return vector is not None and vector.storage_type == "p"


def _find_faults(action: Add | Remove | Cdc, expected: ExpectedFiles) -> Iterator[str]:
    # A remove names a file that is there, whatever its address: a table may be older than these rules.
    if not isinstance(action, Remove) and (
        reason := path_fault(action.path, absolute_allowed=expected.absolute_paths)
    ):
        yield reason
    if action.size is not None and action.size < 0:
        yield f"the size must not be negative, got {action.size}"
    partitions = expected.partitions_before if isinstance(action, Remove) else expected.partitions
    if action.partition_values is not None and partitions is not None:
        yield from _partition_faults(action.partition_values, partitions)
    match action:
        case Cdc():
            if "changeDataFeed" not in expected.features:
                yield "the table has no change feed; it would need the feature 'changeDataFeed'"
            if action.data_change:
                yield "'dataChange' must be false for files of the change feed"
        case Add():
            if action.modification_time < 0:
                yield f"the modification time must not be negative, got {action.modification_time}"
            yield from _stats_faults(action)
            yield from _row_id_faults(action, expected)
            yield from _vector_faults(action.deletion_vector, expected)
        case Remove():
            if action.deletion_timestamp is not None and action.deletion_timestamp < 0:
                yield f"the deletion timestamp must not be negative, got {action.deletion_timestamp}"
            if action.extended_file_metadata and (action.partition_values is None or action.size is None):
                yield "'extendedFileMetadata' is true, but 'partitionValues' or 'size' is missing"


def _partition_faults(values: Values, columns: Mapping[str, Field]) -> Iterator[str]:
    if missing := [name for name in columns if name not in values]:
        yield f"'partitionValues' lacks {_join_names(missing)}"
    if strange := [name for name in values if name not in columns]:
        column_names = _join_names(list(columns)) if columns else "none"
        yield (
            f"'partitionValues' names {_join_names(strange)}, but the table's partition columns are "
            f"{column_names}"
        )
    for name, text in values.items():
        field = columns.get(name)
        if field is None or not isinstance(field.type, str):
            continue
        try:
            value = parse_value(field.type, text)
        except ValueError as problem:
            yield f"the partition value {text!r} of '{name}' is not a valid {field.type}: {problem}"
            continue
        if value is None and not field.nullable:
            yield f"the partition value of '{name}' is null, but the column is not nullable"


def _stats_faults(add: Add) -> Iterator[str]:
    if not add.stats:
        if add.deletion_vector is not None:
            yield "it has a deletion vector, but no 'stats' with 'numRecords' to count the file's rows"
        return
    try:
        stats: Any = msgspec.json.decode(add.stats)
    except (msgspec.MsgspecError, RecursionError) as problem:
        yield f"'stats' is not JSON: {problem}"
        return
    if not isinstance(stats, dict):
        yield "'stats' is not a JSON object"
        return
    count = stats.get("numRecords")
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        yield f"'numRecords' of 'stats' must be a number of rows, got {count!r}"
    elif add.deletion_vector is not None and add.deletion_vector.cardinality > count:
        yield f"the deletion vector deletes {add.deletion_vector.cardinality} rows of {count}"
    for name in ("minValues", "maxValues", "nullCount"):
        if not isinstance(stats.get(name, {}), dict | None):
            yield f"'{name}' of 'stats' is not a JSON object"


def _row_id_faults(add: Add, expected: ExpectedFiles) -> Iterator[str]:
    row_id_fields = (
        ("baseRowId", add.base_row_id),
        ("defaultRowCommitVersion", add.default_row_commit_version),
    )
    for name, value in row_id_fields:
        if value is not None and value < 0:
            yield f"'{name}' must not be negative, got {value}"
        if value is not None and ROW_TRACKING not in expected.features:
            yield f"it has '{name}', which needs the table feature '{ROW_TRACKING}'"
    if expected.needs_row_counts and add.base_row_id is None and not add.stats:
        yield "it has no 'stats' with 'numRecords', which a table with row tracking needs"
    elif expected.iceberg and not add.stats:
        yield f"it has no 'stats' with 'numRecords', which '{expected.iceberg}' asks for"


def _vector_faults(vector: DeletionVector | None, expected: ExpectedFiles) -> Iterator[str]:
    if vector is None:
        return
    if VECTORS not in expected.features:
        yield "it has a deletion vector, which needs the table feature 'deletionVectors'"
    if not expected.has_vectors:
        yield f"it has a deletion vector, which '{expected.iceberg}' forbids"
    if vector.size_in_bytes < 0 or vector.cardinality < 0 or (vector.offset or 0) < 0:
        yield "the deletion vector has a negative size, cardinality or offset"
    if vector.size_in_bytes > _INT32_MAX or (vector.offset or 0) > _INT32_MAX:
        yield "the deletion vector has a size or an offset that does not fit into 32 bits"
    match vector.storage_type:
        case "i":
            if vector.offset is not None:
                yield "the deletion vector is inline, but has an offset in a file"
        case "u":
            name = vector.path_or_inline_dv
            if len(name) < _VECTOR_NAME_MIN:
                yield f"the deletion vector's name {name!r} is too short for a UUID"
            elif (prefix := name[:-_VECTOR_NAME_MIN]) and (reason := path_fault(quote(prefix))):
                yield f"before the deletion vector's name, {reason}"
        case "p":
            if not expected.absolute_paths:
                yield "the deletion vector's path is absolute; keep it below the table"
        case other:
            yield f"the deletion vector's storage type {other!r} is not one of 'u', 'i' and 'p'"


def _lint_repeated_files(actions: Sequence[Numbered]) -> Iterator[Fault]:
    """A path added twice or removed twice, or the very same logical file added and removed."""
    for kind in (Add, Remove):
        word = "added" if kind is Add else "removed"
        seen: dict[str, int] = {}
        for line, action in actions:
            if isinstance(action, kind):
                first = seen.setdefault(action.key.path, line)
                if first != line:
                    yield line, f"the file {action.path!r} is {word} a second time, after line {first}"
    removed = {action.key: line for line, action in actions if isinstance(action, Remove)}
    for line, action in actions:
        if isinstance(action, Add) and action.key in removed:
            where = f"line {removed[action.key]} removes it with the same deletion vector"
            yield line, f"the file {action.path!r} is added, but {where}; one commit cannot do both"


def _find_removes_without_file(
    actions: Sequence[Numbered], expected: ExpectedFiles, live: Lookup
) -> Iterator[Fault]:
    """Removes of files that the table does not have, and adds that would give it one path twice.

    A commit that only adds files asks nothing of a table that has no deletion vectors: it is the common one,
    and cannot go wrong here.
    """
    removed = {action.key for _, action in actions if isinstance(action, Remove)}
    if not removed and VECTORS not in expected.features:
        return
    live_files = live({action.key.path for _, action in actions if isinstance(action, Add | Remove)})
    for line, action in actions:
        if not isinstance(action, Add | Remove):
            continue
        path, vector = action.key
        if path not in live_files:
            if isinstance(action, Remove):
                yield line, f"the file {action.path!r} is not in the table, and cannot be removed"
        elif live_files[path] != vector:
            live_file = (
                f"the file {action.path!r} is in the table with the deletion vector "
                f"{_quote_vector(live_files[path])}"
            )
            if isinstance(action, Remove):
                yield line, f"{live_file}, and cannot be removed with {_quote_vector(vector)}"
            elif FileKey(path, live_files[path]) not in removed:
                yield line, f"{live_file}; remove that in the same commit"


def _quote_vector(vector: str | None) -> str:
    return "none" if vector is None else repr(vector)


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


PATH_MAX: Final = 4096
"""Characters of an address; file systems take no more either."""

BRANCH_DATA: Final = f"{SCRATCH}/data/"
"""Below the table's root: data files that branches write. No engine that cleans up the table looks there, and
until the branch is merged its log does not name them."""

_NOT_FOR_DATA: Final = frozenset({LOG.rstrip("/"), SCRATCH})
"""Folders of a table, be it this one or one below it, for what is no data."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]*:/")
_ROOT: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*:)?/*")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_IN_A_URI: Final = re.compile(r"[\x00-\x20\x7f\"<>\\^`{|}\[\]#?]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def path_fault(path: str, *, absolute_allowed: bool = False) -> str | None:
    """What is wrong with the percent-encoded address of a file, or ``None``.

    An address is decoded once, as readers do, and judged by what comes out: ``%2e%2e`` is ``..`` and leads
    out of the table, ``%252e`` is the name ``%2e``. Characters that no address may hold unencoded are
    refused, because strict readers fail on them and lenient ones disagree about what they mean.
    """
    if not path:
        return "the path is empty"
    if len(path) > PATH_MAX:
        return f"the path {path[:60]!r}… has {len(path)} characters; the limit is {PATH_MAX}"
    if match := _NOT_IN_A_URI.search(path):
        return f"the path {path!r} contains {match[0]!r}, which must be percent-encoded"
    if _BAD_ESCAPE.search(path):
        return (
            f"the path {path!r} contains a '%' that does not begin an encoded character; encode it as '%25'"
        )
    try:
        decoded = unquote(path, errors="strict")
    except UnicodeDecodeError:
        return f"the path {path!r} does not decode to UTF-8"
    if _CONTROL.search(decoded):
        return f"the path {path!r} contains a control character"
    # An encoded colon makes no scheme, except to those who decode before they look.
    absolute = path.startswith("/") or _SCHEME.match(path) or decoded.startswith("file:/")
    if absolute and not absolute_allowed:
        return f"the path {path!r} is absolute; give it relative to the table"
    steps = _ROOT.sub("", decoded, count=1).split("/") if absolute else decoded.split("/")
    if wrong := {"", ".", ".."}.intersection(steps):
        return f"the path {path!r} contains the step {min(wrong)!r}; give the path without it"
    if absolute:
        steps = f"/{'/'.join(steps)}".replace(f"/{BRANCH_DATA}", "/", 1).split("/")
    elif decoded.startswith(BRANCH_DATA):
        steps = steps[2:]
    if reserved_steps := _NOT_FOR_DATA.intersection(steps):
        return f"the path {path!r} is in '{min(reserved_steps)}', which is reserved"
    return None
