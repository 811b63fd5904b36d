"""The lake's description of itself: one row of the store, made when the lake is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final, TypeVar
from uuid import uuid4

import msgspec

from penstock.errors import (
    Damaged,
    InvalidRequest,
    LakeExists,
    LakeMoved,
    LakeNotFound,
    Unavailable,
    UnsupportedFormat,
)
from penstock.kernel.grace_periods import GracePeriods, add_grace_periods
from penstock.kernel.records import KeepRow, ReplaceRow, RowSubject, RowSwap, swap_row
from penstock.kernel.reference_rows import decode_reference_row
from penstock.kernel.settings import Settings
from penstock.model.clock import TIME_MAX_US, TIME_MIN_US
from penstock.model.encoding import NO_COMMIT, ObjectId, encode, make_decoder
from penstock.model.names import NAME_MAX_CHARS
from penstock.model.objects import OBJECT_MAX_BYTES, Large, LogEntry, decode_object
from penstock.model.references import Kind
from penstock.storage.moved_roots import MovedRoot, map_roots, unmap_root
from penstock.stores import get_place
from penstock.stores.port import Row, Store

FORMAT_VERSION: Final = 8
"""The highest that is known of what is stored. A lake with a higher one is refused."""
FIRST_VERSION: Final = 1
"""What a lake has that says nothing which the first release would misread."""
GRACES_VERSION: Final = 2
"""What a lake has that says how long its grace periods are: who does not know would sweep by its own."""
EXPIRED_VERSION: Final = 3
"""What a lake has that keeps expired commits in blobs: who does not know would take them for damage."""

GRANTS_VERSION: Final = 4
"""What a lake has whose tokens have grants that older versions cannot read: they would fail on all tokens."""
HORIZONS_VERSION: Final = 5
"""What a lake has in which a table was erased: who does not know would take what is gone for damage."""
BACKUPS_VERSION: Final = 6
"""What backups have, and lakes that files are kept for their backups: who does not know would remove them."""

MOVED_ROOTS_VERSION: Final = 7
"""What a lake has whose files were moved to other roots: who does not know would look at the old ones, and
write there."""

CLONES_VERSION: Final = 8
"""What a lake has in which a table was cloned: who does not know would remove files that clones have."""

ROW_MAX_BYTES: Final = OBJECT_MAX_BYTES
"""What programs and people put into the description may not make it larger, so that every store takes it."""

COMMITS_MAX: Final = 2**40
DAYS_MAX: Final = 100_000

BEGINNINGS_MAX: Final = 100
"""More objects than that are not left by making a lake."""

ROW_NAME: Final = "@lake"
"""No branch or tag can have this name."""
SUBJECT: Final = RowSubject(
    "the lake's description", "Look at it when the store answers; repeating the request is safe."
)

A = TypeVar("A")


class HistoryRule(msgspec.Struct, frozen=True, array_like=True):
    """How much history is kept for references whose names match a pattern: a number of commits, and all
    younger ones.

    The horizon belongs to the lake, not to a process: every writer must know what a sweep may remove.
    """

    pattern: str
    max_commits: int | None
    max_days: float | None
    since_us: int
    """A sweep applies a new rule one grace period later, when every writer knows it."""
    ended_us: int | None = None
    """Writers apply an old rule for one more grace period, because a sweep that began earlier may do so."""


class Seal(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Says that a lake is moving, or has moved: it takes no more writes."""

    copy: str
    """The id of the copy that moves it."""
    target: str
    """Where to, without secrets."""
    since_us: int
    is_final: bool = False
    """Whether the lake lives there now. Until then the move can be cancelled."""


class CopyPhase(StrEnum):
    """How far a copy has got."""

    BEGUN = "begun"
    ROWS = "rows"
    """The source is sealed; its rows are being copied."""
    OBJECTS = "objects"
    CHECKING = "checking"
    COMPLETE = "complete"


class CopyArrival(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """How a lake comes, or came, from another place. It cannot be opened before it is complete."""

    copy: str
    """The id of the copy."""
    source: str
    """Where from, without secrets."""
    source_id: str
    """The id of the lake there."""
    is_fork: bool
    phase: CopyPhase = CopyPhase.BEGUN
    token: bytes = b""
    """From where the scan of the source's objects goes on."""
    references: int = 0
    commits: int = 0
    objects: int = 0
    size_bytes: int = 0
    point: str = ""
    """The id of the backup that the lake is restored from, if it is."""


class RegisteredBackup(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A backup that a lake knows of. Files of tables that it counts on are kept for it."""

    id: str
    target: str
    """Where it is, without secrets."""
    created_us: int
    heads: Large
    """The commits that its branches and tags are at, one id after the other."""
    references: int = 0
    size_bytes: int = 0
    """Of what it added to its target; 0 until it is complete."""
    is_complete: bool = False
    has_data: bool = False
    """Whether it has the files of tables itself, or is to have them."""
    data_bytes: int = 0
    """Of all files of tables that it has; 0 until it is complete."""

    @property
    def keeps_files(self) -> bool:
        """Whether it counts on files of the lake's tables: not if it has them itself."""
        return not (self.has_data and self.is_complete)


class LakeDescription(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What a lake is: its id, its default branch, where its tables are, what the sweep has removed."""

    format_version: int = FIRST_VERSION
    id: str
    created_us: int
    default_branch: str = "main"
    warehouse: str = ""
    """Where tables without a location of their own are."""
    roots: tuple[str, ...] = ()
    """Further places where tables may be."""
    expired: tuple[ObjectId, ...] = ()
    """Commits behind the history horizon that kept ones name as their parents, if they are not too many."""
    history: tuple[HistoryRule, ...] = ()
    """Of several that match a name, the one set last holds. Without one, all history is kept."""
    sealed: Seal | None = None
    """Where the lake is moving, or has moved."""
    arrival: CopyArrival | None = None
    """How it came here, if it was not made here."""
    forked_from: str = ""
    """The id of the lake that this one is a copy of, and whose managed tables it may only read."""
    settings: dict[str, str] = {}
    """What programs noted with the lake, under names of their own."""
    graces: tuple[GracePeriods, ...] = ()
    """The grace periods that hold, or that somebody may still go by, the newest last; none by default."""
    more_expired: Large | None = None
    """Where all expired commits are if they are too many for this row (see ``kernel.expired``)."""

    is_backup: bool = False
    """Whether the store holds backups of the lake, and no lake."""
    backups: tuple[RegisteredBackup, ...] = ()
    """The backups that were made of the lake and not forgotten, the oldest first."""
    moved_roots: tuple[MovedRoot, ...] = ()
    """Roots whose files lie elsewhere now, or did. All locations in the lake are below the old ones."""

    @property
    def horizon(self) -> tuple[object, ...]:
        """Something that is the same as long as the same commits have expired."""
        return self.expired, self.more_expired

    def _find_matching_rules(self, name: str) -> Iterator[HistoryRule]:
        """The rules for a reference, the one set last first."""
        return (rule for rule in reversed(self.history) if fnmatchcase(name, rule.pattern))

    def find_rule(self, name: str) -> HistoryRule | None:
        """The rule that holds for a reference."""
        return next((rule for rule in self._find_matching_rules(name) if rule.ended_us is None), None)

    def find_rules_since(self, name: str, oldest_us: int) -> list[HistoryRule]:
        """The rules that held for a reference at any moment since a time."""
        rules: list[HistoryRule] = []
        for rule in self._find_matching_rules(name):
            if rule.ended_us is None or rule.ended_us > oldest_us:
                rules.append(rule)
                if rule.ended_us is None and rule.since_us <= oldest_us:
                    break
        return rules


_decode = make_decoder(LakeDescription).decode


def make_history_rule(
    pattern: str, max_commits: int | None, max_days: float | None, now_us: int
) -> HistoryRule | None:
    """A new rule, ``None`` without limits; ``InvalidRequest`` if it cannot be."""
    if not isinstance(pattern, str) or not pattern.isprintable() or not 0 < len(pattern) <= NAME_MAX_CHARS:
        raise InvalidRequest(f"{pattern!a} is not a pattern of reference names")
    if max_commits is None and max_days is None:
        return None
    if max_commits is not None and not (type(max_commits) is int and 1 <= max_commits <= COMMITS_MAX):
        raise InvalidRequest(f"max_commits must be between 1 and {COMMITS_MAX}, got {max_commits!r}")
    if max_days is not None and not (type(max_days) in (int, float) and 0 <= max_days <= DAYS_MAX):
        raise InvalidRequest(f"max_days must be between 0 and {DAYS_MAX}, got {max_days!r}")
    return HistoryRule(pattern, max_commits, max_days, now_us)


def with_new_grace(lake: LakeDescription, new: GracePeriods) -> LakeDescription:
    """The lake with another grace, which an older Penstock cannot open any more: it would not heed it."""
    graces = add_grace_periods(lake.graces, new)
    version = max(lake.format_version, GRACES_VERSION if graces else FIRST_VERSION)
    return msgspec.structs.replace(lake, graces=graces, format_version=version)


def set_minimum_version(lake: LakeDescription, version: int) -> LakeDescription:
    """The lake with at least a format version, which an older Penstock refuses by name."""
    return msgspec.structs.replace(lake, format_version=max(lake.format_version, version))


def with_moved_root(lake: LakeDescription, old: str, new: str) -> LakeDescription:
    """The lake with the files below a root at another place; ``InvalidRequest`` if that cannot be."""
    return _replace_moved_roots(lake, map_roots(lake.moved_roots, _list_roots(lake), old, new))


def without_moved_root(lake: LakeDescription, location: str) -> LakeDescription:
    """The lake with the files of a root where they were at first; ``InvalidRequest`` if it was not mapped."""
    return _replace_moved_roots(lake, unmap_root(lake.moved_roots, _list_roots(lake), location))


def _list_roots(lake: LakeDescription) -> list[str]:
    return [root for root in (lake.warehouse, *lake.roots) if root]


def _replace_moved_roots(lake: LakeDescription, moved: tuple[MovedRoot, ...]) -> LakeDescription:
    changed = msgspec.structs.replace(lake, moved_roots=moved)
    return check_description_size(lake, set_minimum_version(changed, MOVED_ROOTS_VERSION))


def check_description_size(before: LakeDescription, after: LakeDescription) -> LakeDescription:
    """A description into which somebody puts something; ``InvalidRequest`` if it gets too large by that.

    One that was too large already may stay so, and shrink.
    """
    size = len(_encode_row(after).data)
    if size <= ROW_MAX_BYTES or size <= len(_encode_row(before).data):
        return after
    raise InvalidRequest(
        f"the lake's description would have {size} bytes, more than the limit of {ROW_MAX_BYTES}: it "
        f"has {len(after.settings)} settings of {len(encode(after.settings))} bytes, "
        f"{len(after.roots)} roots of {len(encode(after.roots))} bytes, {len(after.history)} history "
        f"rules of {len(encode(after.history))} bytes, and {len(after.backups)} backups of "
        f"{len(encode(after.backups))} bytes. Reduce their number or size."
    )


def make_description(
    created_us: int, default_branch: str, warehouse: str, roots: tuple[str, ...]
) -> LakeDescription:
    return LakeDescription(
        id=str(uuid4()),
        created_us=created_us,
        default_branch=default_branch,
        warehouse=warehouse,
        roots=roots,
    )


def find_description(store: Store) -> LakeDescription | None:
    """What the lake says of itself, if there is one; ``UnsupportedFormat`` if it is too new."""
    row = store.reference(ROW_NAME)
    return _decode_supported(row, store) if row is not None else None


def read_description(store: Store) -> LakeDescription:
    """What the lake says of itself; ``LakeNotFound`` if there is no lake, ``Damaged`` if there was one."""
    description = find_description(store)
    if description is None:
        require_unused(store)
        description = find_description(store)  # another process may have made the lake meanwhile
    if description is None:
        raise _not_found_error(store)
    return description


def require_unused(store: Store) -> None:
    """``Damaged`` if a store without a description holds anything else of a lake.

    A lake is made by writing its description, before anything else is stored. So objects and rows without one
    belong to a lake whose description was lost, and that lake must not be taken for a new one.
    """
    if is_incomplete_lake(store) or find_description(store) is not None:
        return
    raise Damaged(
        f"the lake at {get_place(store)} is damaged: its description is missing, but other parts of it are "
        "there. Nothing was changed. Restore the lake's database from a backup.",
        url=store.url,
    )


def is_incomplete_lake(store: Store) -> bool:
    """Whether a store holds no more than whoever was stopped while making a lake left behind.

    That is at most its first branch, without a commit, and first entries of that branch's log: those of
    several who made the lake at once and did not all succeed. The first release made the branch before the
    description.
    """
    rows = [row for kind in Kind if kind is not Kind.LAKE for row in store.references(kind.value, limit=2)]
    if len(rows) > 1 or any(row.kind != Kind.BRANCH for row in rows):
        return False
    if any(decode_reference_row(row).head != NO_COMMIT for row in rows):
        return False
    objects = [stored_object.id for stored_object in store.scan(b"", BEGINNINGS_MAX)[0]]
    return len(objects) < BEGINNINGS_MAX and all(map(_is_creation, store.fetch(objects).values()))


def _is_creation(data: bytes) -> bool:
    """Whether an object is the first entry of the log of an empty branch."""
    try:
        entry = decode_object(data)
    except (msgspec.MsgspecError, ValueError):
        return False
    return isinstance(entry, LogEntry) and entry.previous == entry.before == entry.after == NO_COMMIT


def _decode_supported(row: Row, store: Store) -> LakeDescription:
    try:
        (version, *_) = msgspec.msgpack.decode(row.data)
        description: LakeDescription | None = _decode(row.data) if version <= FORMAT_VERSION else None
    except (msgspec.MsgspecError, ValueError, TypeError) as problem:
        raise Damaged(f"the lake's description at {store.url} cannot be read: {problem}") from None
    if description is None or version > FORMAT_VERSION:
        raise UnsupportedFormat(
            f"the lake at {store.url} has format version {version}; this Penstock reads versions up to "
            f"{FORMAT_VERSION}. Use a newer Penstock.",
            found=version,
            known=FORMAT_VERSION,
        )
    if not TIME_MIN_US <= description.created_us <= TIME_MAX_US:
        raise Damaged(f"the lake's description at {store.url} cannot be read: it contains an impossible time")
    return description


def write_description(
    store: Store,
    description: LakeDescription,
    objects: Mapping[ObjectId, bytes] | None = None,
    settings: Settings | None = None,
) -> None:
    """Make a lake, once, with the objects that its description needs: ``LakeExists`` if there is one."""

    def decide_change(row: Row | None, _: bool) -> RowSwap[None]:
        if row is not None:
            raise LakeExists(f"there is already a lake at {store.url}", url=store.url)
        return RowSwap(_encode_row(description), None, objects or {})

    swap_row(store, settings or Settings(), ROW_NAME, SUBJECT, decide_change)


def require_unmoved(store: Store) -> None:
    """``LakeMoved`` if the lake is moving to another place, or has moved."""
    lake = find_description(store)
    if lake is not None and lake.sealed is not None:
        raise lake_moved_error(lake.sealed, store)


def lake_moved_error(seal: Seal, store: Store) -> LakeMoved:
    """The error for a write to a lake that is sealed."""
    if seal.is_final:
        message = (
            f"the lake at {store.url} has moved to {seal.target}; write there. The old location is read-only"
        )
    else:
        message = (
            f"the lake at {store.url} is moving to {seal.target}; it is read-only until the move is "
            "complete, or until 'penstock move SOURCE --cancel' lets it stay"
        )
    return LakeMoved(message, target=seal.target, copy=seal.copy, is_final=seal.is_final)


def require_no_backup(lake: LakeDescription, store: Store) -> None:
    """``InvalidRequest`` if a store holds backups: nobody opens them as a lake."""
    if lake.is_backup:
        raise InvalidRequest(
            f"{get_place(store)} holds backups of lake {lake.id}, and is not a lake\n"
            "  To restore a backup as "
            "a lake: penstock restore-backup BACKUP PLACE",
            url=store.url,
        )


def require_arrived(lake: LakeDescription, store: Store) -> None:
    """``Unavailable`` if a copy to this place is not complete."""
    arrival = lake.arrival
    if arrival is not None and arrival.phase is not CopyPhase.COMPLETE:
        verb = "restore-backup" if arrival.point else "copy" if arrival.is_fork else "move"
        raise Unavailable(
            f"the lake at {store.url} is still being copied from {arrival.source}; to complete the copy, run "
            f"the same 'penstock {verb}' again"
        )


def change_description(
    store: Store,
    settings: Settings,
    change: Callable[[LakeDescription], LakeDescription | ReplaceRow[LakeDescription] | KeepRow[A]],
    *,
    though_sealed: bool = False,
) -> LakeDescription | A:
    """Replace the description by what ``change`` makes of it; ``LakeMoved`` if the lake is sealed.

    ``change`` may bring objects that are stored with it, or keep the description as it is. It is called again
    where another process was faster, or where it is not known whether an earlier try landed and the
    description is another one by now.
    """

    def decide_change(row: Row | None, _: bool) -> RowSwap[LakeDescription | A] | KeepRow[A]:
        if row is None:
            raise _not_found_error(store)
        description = _decode_supported(row, store)
        if description.sealed is not None and not though_sealed:
            raise lake_moved_error(description.sealed, store)
        changed = change(description)
        if isinstance(changed, KeepRow):
            return changed
        after = changed if isinstance(changed, ReplaceRow) else ReplaceRow(changed)
        return RowSwap(_encode_row(after.value), after.value, after.objects)

    return swap_row(store, settings, ROW_NAME, SUBJECT, decide_change)


def raise_version(store: Store, settings: Settings, version: int) -> None:
    """Let the lake have at least a format version, so that an older Penstock refuses it by name."""
    lake = find_description(store)
    if lake is not None and lake.format_version < version:
        change_description(store, settings, lambda lake: set_minimum_version(lake, version))


def _not_found_error(store: Store) -> LakeNotFound:
    return LakeNotFound(f"there is no lake at {get_place(store)}", url=store.url)


def _encode_row(description: LakeDescription) -> Row:
    return Row(ROW_NAME, Kind.LAKE.value, encode(description))
