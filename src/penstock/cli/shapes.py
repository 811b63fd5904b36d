"""What ``--json`` prints: one class for each object. The fields and their meaning are part of the interface.

Ids are whole, times are ISO 8601 in UTC, keys are written as on the command line (``sales.orders``), contents
as ``{"type": …, …}`` (see ``contents``). What is not there is ``null``. Fields may be added, never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock.cli.contents import as_json
from penstock.errors import PenstockError
from penstock.formats.delta.lake.answers import TableMade, TableStatus
from penstock.kernel.copy import Copied
from penstock.kernel.description import HistoryRule as ModelHistoryRule
from penstock.kernel.fsck import Checked
from penstock.kernel.sweep import Swept
from penstock.lake import answers, resync_calls
from penstock.lake.answers import About, Difference, LogLine, SweptTable
from penstock.lake.transactions.answers import TransactionInfo
from penstock.model.clock import utc
from penstock.model.commits import Commit as ModelCommit
from penstock.model.conflicts import Conflict as ModelConflict
from penstock.model.content import AnyContent
from penstock.model.keys import Key
from penstock.model.merges import ChangeSummary as ModelChangeSummary
from penstock.model.merges import MergedKey as ModelMergedKey
from penstock.model.merges import MergeResult
from penstock.model.reads import Read
from penstock.model.references import Reference as ModelReference
from penstock.model.tokens import Token as ModelToken

if TYPE_CHECKING:
    from penstock.formats.delta.lake.snapshot import PastVersion
    from penstock.kernel.backup import BackedUp
    from penstock.kernel.backup_data import BackupData
    from penstock.kernel.backup_points import BackupPoint
    from penstock.kernel.description import RegisteredBackup
    from penstock.lake.backup import RestoredLake
    from penstock.lake.root_maps import MappedRoots as RootsMapped
    from penstock.lake.upgrade import Upgraded
    from penstock.storage.moved_roots import MovedRoot as RootMoved

Content: TypeAlias = dict[str, Any]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What all of them share: nothing but being printed."""


def _content(content: AnyContent | None) -> Content | None:
    return None if content is None else as_json(content)


class Commit(Shape, frozen=True, kw_only=True):
    """A commit."""

    id: str
    """64 hexadecimal digits."""
    parents: tuple[str, ...]
    """The commit it follows first, then what it merged; none for a first commit."""
    time: datetime
    """When it was committed."""
    author: str
    """Its first author, or its committer if it names none."""
    authors: tuple[str, ...]
    """All authors."""
    committer: str
    """Who had it committed."""
    signed_off_by: tuple[str, ...]
    """Who signed it off."""
    message: str
    """The whole message."""
    properties: dict[str, tuple[str, ...]]
    """Further facts that its writer noted."""
    generation: int
    """One more than the highest of its parents."""
    key: str
    """The idempotency key of the request."""

    @classmethod
    def of(cls, commit: ModelCommit) -> Commit:
        return cls(
            id=commit.id,
            parents=commit.parents,
            time=commit.time,
            author=commit.author,
            authors=commit.authors,
            committer=commit.committer,
            signed_off_by=commit.signed_off_by,
            message=commit.message,
            properties=commit.properties,
            generation=commit.generation,
            key=commit.key,
        )


class Change(Shape, frozen=True, kw_only=True):
    """A key that a commit changed, or that differs between two."""

    key: str
    """The key."""
    change: str
    """`added`, `removed` or `changed`."""
    type: str
    """The type of what it holds now, or held."""
    before: Content | None
    """The content before."""
    after: Content | None
    """The content after."""

    @classmethod
    def of(cls, one: Difference) -> Change:
        return cls(
            key=str(one.key),
            change={"+": "added", "-": "removed", "~": "changed"}[one.sign],
            type=one.type,
            before=_content(one.before),
            after=_content(one.after),
        )


class ChangedCommit(Commit, frozen=True, kw_only=True):
    """A commit with what it changed."""

    references: tuple[str, ...]
    """The branches and tags that are at it."""
    changes: tuple[Change, ...] | None
    """What it changed, compared with its first parent; `null` if that has expired, or cannot be read."""

    @classmethod
    def build(
        cls, commit: ModelCommit, changes: Iterable[Difference] | None, names: Iterable[str]
    ) -> ChangedCommit:
        told = None if changes is None else tuple(Change.of(one) for one in changes)
        return cls(**msgspec.structs.asdict(Commit.of(commit)), references=tuple(names), changes=told)


class Log(Shape, frozen=True, kw_only=True):
    """A page of a log."""

    commits: tuple[ChangedCommit, ...]
    """Newest first."""
    next: str | None
    """What `--after` needs for the next page; `null` if this is the last one."""


class Entry(Shape, frozen=True, kw_only=True):
    """What a key holds."""

    key: str
    """The key."""
    content: Content
    """The content."""

    @classmethod
    def of(cls, key: Key, content: AnyContent) -> Entry:
        return cls(key=str(key), content=as_json(content))


class Table(Shape, frozen=True, kw_only=True):
    """A table at a commit."""

    ref: str
    """The revision that was asked for."""
    commit: str
    """The id of the commit it names."""
    key: str
    """The key."""
    content: Content
    """The content."""


class Entries(Shape, frozen=True, kw_only=True):
    """A page of tables or namespaces at a commit."""

    ref: str
    """The revision that was asked for."""
    commit: str
    """The id of the commit it names."""
    entries: tuple[Entry, ...]
    """In the order of their keys."""
    next: str | None
    """What `--after` needs for the next page; `null` if this is the last one."""


class Diff(Shape, frozen=True, kw_only=True):
    """What differs between two commits."""

    before: str
    """The id of the first commit."""
    after: str
    """The id of the second."""
    changes: tuple[Change, ...]
    """In the order of their keys."""


class Reference(Shape, frozen=True, kw_only=True):
    """A branch or tag."""

    kind: str
    """`branch` or `tag`."""
    name: str
    """Its name."""
    head: str
    """The id of the commit it names; `2e1cfa82…` if it has none yet."""
    default: bool
    """Whether it is the lake's default branch."""
    created: datetime
    """When it was created."""

    @classmethod
    def of(cls, reference: ModelReference, default_branch: str) -> Reference:
        return cls(
            kind=reference.kind.value,
            name=reference.name,
            head=reference.id,
            default=reference.name == default_branch,
            created=utc(reference.created_us),
        )


class References(Shape, frozen=True, kw_only=True):
    """A page of branches or tags."""

    references: tuple[Reference, ...]
    """In the order of their names."""
    next: str | None
    """What `--after` needs for the next page; `null` if this is the last one."""


class DeletedReference(Shape, frozen=True, kw_only=True):
    """A branch or tag that was just deleted."""

    name: str
    """Its name."""
    deleted: bool
    """`true`."""


class Event(Shape, frozen=True, kw_only=True):
    """One event in the life of a branch or tag."""

    position: int
    """Its number, counted from the first event under that name."""
    time: datetime
    """When it happened."""
    event: str
    """`create`, `commit`, `merge`, `transplant`, `assign`, `delete` or `seal`."""
    before: str
    """The id of the commit that was named before."""
    after: str
    """The id of the commit that was named after."""
    who: str
    """Who did it."""
    requests: int
    """How many requests this one swap landed."""

    @classmethod
    def of(cls, line: LogLine) -> Event:
        return cls(
            position=line.position,
            time=line.time,
            event=line.event,
            before=line.before,
            after=line.after,
            who=line.who,
            requests=line.requests,
        )


class RefLog(Shape, frozen=True, kw_only=True):
    """What happened to a branch or tag."""

    name: str
    """Its name."""
    events: tuple[Event, ...]
    """Newest first."""


class DeletedNames(Shape, frozen=True, kw_only=True):
    """Deleted branches and tags whose log can still be read."""

    deleted: tuple[str, ...]
    """Their names."""


class Conflict(Shape, frozen=True, kw_only=True):
    """Why a key cannot be as its writer wanted it."""

    kind: str
    """Such as `VALUE_DIFFERS`, `KEY_EXISTS`, `NAMESPACE_ABSENT`."""
    key: str
    """The key."""
    expected: str
    """What was expected there, in words."""
    found: str
    """What is there, in words."""
    why: str
    """A table format's reason, if it is one that refuses."""
    path: str
    """Where in a table of files, if it is about one file."""

    @classmethod
    def of(cls, conflict: ModelConflict) -> Conflict:
        return cls(
            kind=conflict.kind.value,
            key=str(conflict.key),
            expected=conflict.expected,
            found=conflict.found,
            why=conflict.why,
            path=conflict.path,
        )


class ChangeSummary(Shape, frozen=True, kw_only=True):
    """What a change does to a table, counted; `null` is what is not known without reading data files."""

    version_before: int | None
    """The table's latest version before."""
    version_after: int | None
    """Its version after."""
    files_added: int | None
    """Data files that come."""
    files_removed: int | None
    """Data files that go."""
    files_changed: int | None
    """Data files that stay, with other deleted rows; in a table of files, paths that get other files."""
    rows_added: int | None
    """Rows that come."""
    rows_removed: int | None
    """Rows that go."""
    bytes_added: int | None
    """Of the files that come."""
    bytes_removed: int | None
    """Of the files that go."""

    @classmethod
    def of(cls, counts: ModelChangeSummary) -> ChangeSummary:
        return cls(**msgspec.structs.asdict(counts))


class MergedKey(Shape, frozen=True, kw_only=True):
    """What came of one key."""

    key: str
    """The key."""
    mode: str
    """`normal`, `force` or `drop`."""
    before: Content | None
    """What the target held before."""
    after: Content | None
    """What it holds now, or would."""
    conflicts: tuple[Conflict, ...]
    """What is in the way; nothing if the key is clean."""
    action: str
    """`created`, `dropped`, `changed` or `unchanged`."""
    change: ChangeSummary | None
    """Of a table that the lake manages, in a dry run: what would change."""

    @classmethod
    def of(cls, one: ModelMergedKey) -> MergedKey:
        return cls(
            key=str(one.key),
            mode=one.mode.value,
            before=_content(one.before),
            after=_content(one.after),
            conflicts=tuple(Conflict.of(conflict) for conflict in one.conflicts),
            action=one.action,
            change=None if one.change is None else ChangeSummary.of(one.change),
        )


class Merge(Shape, frozen=True, kw_only=True):
    """What a merge, transplant, rebase, revert or restore did, or would do."""

    source: str
    """What was brought, as it was asked for."""
    target: str
    """The branch that it was brought to."""
    dry_run: bool
    """Whether nothing was done."""
    applied: bool
    """Whether the target moved."""
    commits: tuple[str, ...]
    """Ids of the new commits, oldest first."""
    head: str
    """The target's head: after it, or as a dry run found it."""
    base: str | None
    """The id of the common ancestor, if there is one to speak of."""
    keys: tuple[MergedKey, ...]
    """What came of each key."""

    @classmethod
    def of(cls, source: str, target: str, result: MergeResult) -> Merge:
        return cls(
            source=source,
            target=target,
            dry_run=result.dry_run,
            applied=result.applied,
            commits=result.commits,
            head=result.head,
            base=result.base,
            keys=tuple(MergedKey.of(one) for one in result.keys),
        )


class Outcome(Shape, frozen=True, kw_only=True):
    """What became of a request."""

    key: str
    """Its idempotency key."""
    branch: str
    """The branch, or tag, that it was for."""
    applied: bool
    """Whether it was applied."""
    commits: tuple[str, ...]
    """Ids of the commits that it made, oldest first."""
    head: str | None
    """The id of the commit that it left the branch at."""


class Server(Shape, frozen=True, kw_only=True):
    """A server that answers requests."""

    lake: str
    """The lake that it serves, without secrets."""
    url: str
    """Where it is."""
    workers: int
    """How many processes serve."""


class Token(Shape, frozen=True, kw_only=True):
    """A token, without its secret."""

    id: str
    """12 hexadecimal digits; the token itself contains them."""
    name: str
    """Whom it is for; commits made with it say so."""
    grants: tuple[str, ...]
    """What it allows: `role`, `role:references` or `role:references:keys`."""
    created: datetime
    """When it was created."""
    expires: datetime | None
    """From when on it cannot be used."""

    @classmethod
    def of(cls, token: ModelToken) -> Token:
        return cls(
            id=token.id,
            name=token.name,
            grants=tuple(map(str, token.grants)),
            created=token.created,
            expires=token.expires,
        )


class NewToken(Token, frozen=True, kw_only=True):
    """A token that was just created."""

    token: str
    """The token itself, which is not shown again."""

    @classmethod
    def build(cls, token: ModelToken, text: str) -> NewToken:
        return cls(**msgspec.structs.asdict(Token.of(token)), token=text)


class Tokens(Shape, frozen=True, kw_only=True):
    """All tokens that a server knows."""

    tokens: tuple[Token, ...]
    """By name."""

    @classmethod
    def of(cls, tokens: Iterable[ModelToken]) -> Tokens:
        return cls(tokens=tuple(map(Token.of, tokens)))


class Roots(Shape, frozen=True, kw_only=True):
    """The places where tables may be."""

    warehouse: str
    """Where tables are that have no location of their own; empty if there is no such place."""
    roots: tuple[str, ...]
    """All places, the warehouse first."""
    moved_roots: tuple[MovedRoot, ...] = ()
    """Roots whose files lie elsewhere than where they were stored at first."""

    @classmethod
    def of(cls, about: About) -> Roots:
        return cls(
            warehouse=about.warehouse,
            roots=about.roots,
            moved_roots=MovedRoot.all_of(about.moved_roots),
        )


class MovedRoot(Shape, frozen=True, kw_only=True):
    """A root whose files were moved."""

    old: str
    """Where they were when they were stored."""
    new: str
    """Where they are now."""

    @classmethod
    def all_of(cls, moved: Iterable[RootMoved]) -> tuple[MovedRoot, ...]:
        return tuple(cls(old=one.old, new=one.new) for one in moved if one.old != one.new)


class MappedRoots(Shape, frozen=True, kw_only=True):
    """The roots of a lake whose files were moved."""

    moved_roots: tuple[MovedRoot, ...]
    """All of them."""
    missing: tuple[str, ...]
    """Files of tables that are not there."""

    @classmethod
    def of(cls, made: RootsMapped) -> MappedRoots:
        return cls(
            moved_roots=MovedRoot.all_of(made.moved_roots),
            missing=made.missing,
        )


class Lake(Shape, frozen=True, kw_only=True):
    """A lake."""

    id: str
    """Its own id."""
    url: str
    """Where it is."""
    default_branch: str
    """Its default branch."""
    warehouse: str
    """Where tables are that have no location of their own."""
    roots: tuple[str, ...]
    """All places where tables may be."""


class Copy(Shape, frozen=True, kw_only=True):
    """What was copied."""

    source: str
    """Where the lake was copied from."""
    target: str
    """Where it was copied to."""
    id: str
    """The id of the lake at the target."""
    references: int
    """Branches, tags and logs of deleted ones."""
    commits: int
    """Commits that were copied and checked."""
    objects: int
    """Objects that were copied."""
    bytes: int
    """Their size."""
    repeated: bool
    """Whether it had been complete before."""

    @classmethod
    def of(cls, copied: Copied) -> Copy:
        return cls(
            source=copied.source,
            target=copied.target,
            id=copied.id,
            references=copied.references,
            commits=copied.commits,
            objects=copied.objects,
            bytes=copied.size_bytes,
            repeated=copied.repeated,
        )


class Move(Shape, frozen=True, kw_only=True):
    """What became of a move. Of one that was cancelled or undone nothing is counted."""

    state: str
    """`moved`, `cancelled` or `undone`: the lake lives at the target, or at the source."""
    source: str
    """Where the lake was."""
    target: str
    """Where it was to go."""
    copied: Copy | None
    """What was copied to the target."""

    @classmethod
    def of(cls, moved: Copied) -> Move:
        return cls(state="moved", source=moved.source, target=moved.target, copied=Copy.of(moved))

    @classmethod
    def of_stay(cls, state: str, source: str, target: str) -> Move:
        return cls(state=state, source=source, target=target, copied=None)


class Backup(Shape, frozen=True, kw_only=True):
    """A backup that was made."""

    id: str
    """The backup's id."""
    target: str
    """Where it is."""
    created: datetime
    """The moment that it shows."""
    references: int
    """Branches, tags and logs of deleted ones."""
    objects: int
    """Objects that were copied."""
    bytes: int
    """Their size."""
    whole: bool
    """Whether everything was copied, and not only what changed."""
    verified: bool
    """Whether all that it leads to was read back and checked."""
    registered: bool
    """Whether the lake knows of it, and keeps files of tables for it unless it has them."""
    data: BackupFiles | None
    """The files of tables that it has, if it was made with data."""
    completed: tuple[str, ...]
    """Backups that were interrupted before, and are complete now."""
    expired: tuple[str, ...]
    """Backups that were removed by a rule."""

    @classmethod
    def of(cls, made: BackedUp) -> Backup:
        return cls(
            id=made.point.id,
            target=made.target,
            created=utc(made.point.created_us),
            references=made.point.references,
            objects=made.point.objects,
            bytes=made.point.size_bytes,
            whole=made.point.is_whole,
            verified=made.is_verified,
            registered=made.is_registered,
            data=None if made.point.data is None else BackupFiles.of(made.point.data),
            completed=made.completed,
            expired=made.expired,
        )


class BackupFiles(Shape, frozen=True, kw_only=True):
    """The files of tables in a backup."""

    files: int
    """All that it has, also those that it shares with other backups."""
    bytes: int
    """Their size."""
    new_files: int
    """Those that were copied."""
    new_bytes: int
    """Their size."""
    missing: tuple[str, ...]
    """What was gone already when the backup was made."""

    @classmethod
    def of(cls, data: BackupData) -> BackupFiles:
        return cls(
            files=data.files,
            bytes=data.size_bytes,
            new_files=data.new_files,
            new_bytes=data.new_bytes,
            missing=data.missing,
        )


class BackupLine(Shape, frozen=True, kw_only=True):
    """A backup in a list."""

    id: str
    """The backup's id."""
    target: str
    """Where it is."""
    created: datetime
    """The moment that it shows."""
    bytes: int
    """The size of what it added to its target."""
    complete: bool
    """Whether it can be restored; else the next backup completes it."""
    keeps_files: bool | None
    """Whether the lake keeps files of tables for it; unknown in a list of what a place holds."""
    data: bool
    """Whether it has the files of tables itself, or will once it is complete."""
    data_bytes: int
    """The size of all files of tables that it has."""


class Backups(Shape, frozen=True, kw_only=True):
    """Backups, the oldest first."""

    backups: tuple[BackupLine, ...]
    """All of them."""

    @classmethod
    def of_registered(cls, found: Sequence[RegisteredBackup]) -> Backups:
        lines = [
            BackupLine(
                id=one.id,
                target=one.target,
                created=utc(one.created_us),
                bytes=one.size_bytes,
                complete=one.is_complete,
                keeps_files=one.keeps_files,
                data=one.has_data,
                data_bytes=one.data_bytes,
            )
            for one in found
        ]
        return cls(backups=tuple(lines))

    @classmethod
    def of_points(cls, target: str, found: Sequence[BackupPoint]) -> Backups:
        lines = [
            BackupLine(
                id=one.id,
                target=target,
                created=utc(one.created_us),
                bytes=one.size_bytes,
                complete=one.is_complete,
                keeps_files=None,
                data=one.data is not None,
                data_bytes=0 if one.data is None else one.data.size_bytes,
            )
            for one in found
        ]
        return cls(backups=tuple(lines))


class RemovedBackups(Shape, frozen=True, kw_only=True):
    """Backups that were removed, or forgotten."""

    ids: tuple[str, ...]
    """Their ids."""


class RestoredBackup(Shape, frozen=True, kw_only=True):
    """A lake that was restored from a backup."""

    backup: str
    """The backup's id."""
    created: datetime
    """The moment that it shows."""
    owns_tables: bool
    """Whether the lake takes the place of the one that the backup is of."""
    missing: tuple[str, ...]
    """Files of tables that are gone."""
    put_back_files: int
    """Files of tables that the backup has, and that were put back where they had been."""
    put_back_bytes: int
    """Their size."""
    moved_roots: tuple[MovedRoot, ...]
    """Roots whose files lie elsewhere than where they were stored at first."""
    copied: Copy
    """What was copied."""

    @classmethod
    def of(cls, made: RestoredLake) -> RestoredBackup:
        return cls(
            backup=made.point.id,
            created=utc(made.point.created_us),
            owns_tables=made.owns_tables,
            missing=made.missing,
            put_back_files=0 if made.put_back is None else made.put_back.files,
            put_back_bytes=0 if made.put_back is None else made.put_back.size_bytes,
            moved_roots=MovedRoot.all_of(made.moved_roots),
            copied=Copy.of(made.copied),
        )


class Upgrade(Shape, frozen=True, kw_only=True):
    """An upgrade of a lake."""

    before: int
    """The format version that it had."""
    after: int
    """The format version that it has."""
    backup: str | None
    """The id of the backup that was made before."""

    @classmethod
    def of(cls, done: Upgraded) -> Upgrade:
        return cls(before=done.before, after=done.after, backup=done.backup or None)


class HistoryRule(Shape, frozen=True, kw_only=True):
    """How much history is kept of the branches and tags whose names match a pattern."""

    pattern: str
    """The pattern; `*` for all names."""
    max_commits: int | None
    """Keeps at least so many commits."""
    max_days: float | None
    """Keeps commits for at least so long."""
    since: datetime
    """When it was set; sweeps heed it one grace period later."""


class Horizon(Shape, frozen=True, kw_only=True):
    """How much history is kept; all of it where no rule matches."""

    rules: tuple[HistoryRule, ...]
    """In the order in which they were set: of several that match a name, the last one holds."""

    @classmethod
    def of(cls, rules: Iterable[ModelHistoryRule]) -> Horizon:
        return cls(
            rules=tuple(
                HistoryRule(
                    pattern=rule.pattern,
                    max_commits=rule.max_commits,
                    max_days=rule.max_days,
                    since=utc(rule.since_us),
                )
                for rule in rules
            )
        )


class Grace(Shape, frozen=True, kw_only=True):
    """How long sweeps leave alone what nothing needs."""

    grace_s: float
    """For objects that no branch, tag or log leads to, in seconds."""
    data_grace_days: float
    """For data files that no commit names, in days."""

    @classmethod
    def of(cls, about: About) -> Grace:
        return cls(grace_s=about.grace_s, data_grace_days=about.data_grace_days)


class SweptFiles(Shape, frozen=True, kw_only=True):
    """What a sweep found among the files of a Delta table, and did."""

    key: str
    """The table's key."""
    location: str
    """Where it is."""
    data_files: int
    """Data files that no kept commit names: removed if `data_removed` says so, else to be removed."""
    data_bytes: int
    """Their size."""
    data_removed: bool
    """Whether they were removed."""
    scratch_files: int
    """Staged commits and files beside the log that nothing needs; removed unless it was a dry run."""
    scratch_bytes: int
    """Their size."""
    waiting: int
    """Data files that no commit names, but too young to be removed."""
    kept: int
    """Data files that are needed."""
    forked: int
    """Files that stay because a fork of the lake may need them."""
    names: tuple[str, ...]
    """The first hundred of the data files that were removed, or would be."""
    problem: str
    """Why nothing more was removed of this table; empty if nothing is wrong."""


class SweptPool(Shape, frozen=True, kw_only=True):
    """What a sweep found among the files of tables of files, and the jobs that write them."""

    data_removed: bool
    """Whether files were removed, and not only counted."""
    data_files: int
    """Files that no kept commit names: removed, or to be removed."""
    data_bytes: int
    """Their size."""
    waiting: int
    """Files that no commit names, but too young to be removed, or of a job that may yet commit."""
    kept: int
    """Files that are needed, of those that were looked at: what is written lately is not even listed."""
    forked: int
    """Files that stay because a fork of the lake may need them."""
    missing: int
    """Files that commits name, and that are not there."""
    names: tuple[str, ...]
    """The first hundred of the files that were removed, or would be, below the lake's pool."""
    jobs_settled: int
    """Jobs that were about to commit when their process ended: their branch told what came of them."""
    jobs_forgotten: int
    """Jobs that ended long ago."""
    branches: int
    """Branches of jobs that are over, which were dropped."""
    problem: str
    """Why nothing more was removed; empty if nothing is wrong."""


class ResyncedTable(Shape, frozen=True, kw_only=True):
    """A table that was out of sync with its log or folder."""

    key: str
    """Where it is in the lake."""
    location: str
    """Where its files are."""
    known: int
    """The newest version that the lake had; -1 if it did not have the table."""
    version: int
    """The newest version that it has now, or would have."""
    own: tuple[int, ...]
    """The first and the last version that only the lake had, if there were any."""
    repeated: bool
    """Whether the rows of those were added again."""
    commit: str
    """The commit at which they can be read."""
    doubtful: tuple[str, ...]
    """Files of commits of which it cannot be known whether they were ratified."""
    problem: str
    """Why it was not resynced."""

    @classmethod
    def of(cls, one: resync_calls.ResyncedTable) -> ResyncedTable:
        return cls(**{**msgspec.structs.asdict(one), "key": str(one.key)})


class Resynced(Shape, frozen=True, kw_only=True):
    """What a resync came to."""

    dry_run: bool
    """Whether nothing was changed."""
    in_sync: int
    """How many tables needed nothing."""
    tables: tuple[ResyncedTable, ...]
    """Those that were out of sync."""


class Sweep(Shape, frozen=True, kw_only=True):
    """What a sweep found and did."""

    dry_run: bool
    """Whether nothing was removed."""
    kept: int
    """Objects that are needed."""
    kept_bytes: int
    """Their size."""
    removed: int
    """Objects that were removed, or would be."""
    removed_bytes: int
    """Their size."""
    waiting: int
    """Objects that are not needed, but too young to be removed."""
    receipts: int
    """Idempotency keys that were forgotten."""
    tombstones: int
    """Logs of deleted branches and tags that expired."""
    tables: tuple[SweptFiles, ...]
    """The Delta tables that the lake owns, with what was found among their files."""
    files: SweptPool
    """What was found of tables of files."""

    @classmethod
    def of(cls, swept: Swept, tables: Iterable[SweptTable], files: answers.SweptFiles) -> Sweep:
        counts = {
            name: getattr(swept, name) for name in cls.__struct_fields__ if name not in ("tables", "files")
        }
        pool = SweptPool(**{name: getattr(files, name) for name in SweptPool.__struct_fields__})
        return cls(**counts, tables=tuple(map(cls._files, tables)), files=pool)

    @staticmethod
    def _files(table: SweptTable) -> SweptFiles:
        found = {name: getattr(table, name) for name in SweptFiles.__struct_fields__}
        return SweptFiles(**{**found, "key": str(table.key)})


class Erased(Shape, frozen=True, kw_only=True):
    """What an erase found and did."""

    key: str
    """The table."""
    id: str
    """Of the table."""
    first_version: int
    """The first version that exists from now on, of a table of files how often it was erased; -1 in a dry
    run, and of a table that was dropped."""
    begun: datetime
    """When the erase began, which may have been in an earlier run."""
    older_than: datetime | None
    """The moment from which on history stays; without one, that at which the erase began."""
    who: str
    """Who began it."""
    finished: bool
    """Whether nothing is left of what was to go, as far as the lake can tell."""
    until: datetime | None
    """If it is not finished: when the next run can remove the rest."""
    rewritten_files: int
    """Data files that held deleted rows beside others, and were written anew."""
    log_files: int
    """Files of the table's log that were removed, or would be."""
    data_files: int
    """Data files that were removed, or would be."""
    data_bytes: int
    """Their size."""
    objects: int
    """Objects of the lake's database that were removed."""
    left: tuple[str, ...]
    """What still holds rows, or may, and what becomes of it."""
    dry_run: bool
    """Whether nothing was changed."""

    @classmethod
    def of(cls, erased: answers.ErasedTable) -> Erased:
        found = {name: getattr(erased, name) for name in cls.__struct_fields__}
        return cls(**{**found, "key": str(erased.key)})


class Damage(Shape, frozen=True, kw_only=True):
    """One thing that is wrong."""

    object: str
    """The id of the object, or `lake`."""
    what: str
    """What is wrong with it."""


class Fsck(Shape, frozen=True, kw_only=True):
    """What a check looked at, and what it found wrong."""

    sound: bool
    """Whether nothing is wrong."""
    references: int
    """Branches, tags and logs of deleted ones that were checked."""
    commits: int
    """Commits that were checked."""
    objects: int
    """Objects that were checked."""
    damages: tuple[Damage, ...]
    """What is wrong."""

    @classmethod
    def of(cls, checked: Checked) -> Fsck:
        return cls(
            sound=not checked.damages,
            references=checked.references,
            commits=checked.commits,
            objects=checked.objects,
            damages=tuple(Damage(object=one.object, what=one.what) for one in checked.damages),
        )


class Check(Shape, frozen=True, kw_only=True):
    """One thing that the doctor looked at."""

    name: str
    """What was looked at."""
    state: str
    """`ok`, `warning` or `failed`."""
    finding: str
    """What was found."""
    advice: str
    """What to do about it, if anything."""


class Doctor(Shape, frozen=True, kw_only=True):
    """How the lake and its surroundings are."""

    healthy: bool
    """Whether nothing failed."""
    checks: tuple[Check, ...]
    """One for each thing."""


class Demo(Shape, frozen=True, kw_only=True):
    """What the demonstration leaves."""

    lake: str
    """Where the lake is."""
    commands: tuple[str, ...]
    """Commands to try on it."""


class Measurement(Shape, frozen=True, kw_only=True):
    """What came of one load on a store, done one way."""

    shape: str
    """`one-branch`, `many-branches` or `one-table`: how the writers meet."""
    writers: int
    """How many writers there are."""
    way: str
    """`group commit`, or `naive`: every writer for itself, one commit a swap."""
    commits: int
    """Commits that were acknowledged within the time."""
    commits_per_s: float
    """Commits a second."""
    p50_ms: float | None
    """How long at most half of the commits took."""
    p99_ms: float | None
    """How long at most 99 of 100 commits took."""
    swaps: int
    """Batches that landed, each by one swap."""
    lost_swaps: int
    """Swaps that came too late, and were done again."""
    commits_per_swap: float | None
    """Commits of a batch, on average."""
    calls_per_commit: float | None
    """How often a commit, on average, waited for the store."""
    times_naive: float | None
    """How many times the naive loop's commits a second; only of group commit, and if that was measured."""


class Bench(Shape, frozen=True, kw_only=True):
    """How fast a store is."""

    url: str
    """The store."""
    seconds: float
    """How long each measurement took."""
    measurements: tuple[Measurement, ...]
    """One for each load and way."""
    removed: int
    """Branches of an earlier bench that were removed, if that was asked for."""


class DeltaTable(Shape, frozen=True, kw_only=True):
    """A Delta table that was created, adopted or released."""

    key: str
    """The key."""
    id: str
    """The table's own id."""
    location: str
    """Where it is."""
    version: int
    """The version that it was done with."""
    commit: str
    """The lake's commit that did it."""
    repeated: bool = False
    """Whether it was adopted already, so that nothing had to be done."""

    @classmethod
    def of(cls, made: TableMade) -> DeltaTable:
        return cls(
            key=str(made.key),
            id=str(made.id),
            location=made.location,
            version=made.version,
            commit=made.commit,
            repeated=made.repeated,
        )


class DeltaStatus(Shape, frozen=True, kw_only=True):
    """How far a Delta table is published."""

    key: str
    """The key."""
    location: str
    """Where it is."""
    phase: str
    """`owned`; `adopting` or `released` while that is not finished."""
    latest_version: int
    """The newest version that was ratified."""
    published: int
    """The newest version that is in the table's own log; -1 if none is."""
    backlog: int
    """How many versions are ratified and not published."""
    oldest_s: float | None
    """How long the oldest of them waits, in seconds."""
    alarm: str
    """What stands against publishing; empty if nothing does."""

    @classmethod
    def of(cls, status: TableStatus) -> DeltaStatus:
        return cls(
            key=str(status.key),
            location=status.location,
            phase=status.phase,
            latest_version=status.latest_version,
            published=status.published,
            backlog=status.backlog,
            oldest_s=status.oldest_s,
            alarm=status.alarm,
        )


class DeltaStatuses(Shape, frozen=True, kw_only=True):
    """The Delta tables of the default branch."""

    tables: tuple[DeltaStatus, ...]
    """By key."""


class DeltaPublished(Shape, frozen=True, kw_only=True):
    """Up to where Delta tables were published."""

    tables: tuple[DeltaStatus, ...]
    """As they are afterwards, by key."""


class DeltaRecovered(Shape, frozen=True, kw_only=True):
    """A Delta table that was taken back from its published log."""

    key: str
    """The key."""
    location: str
    """Where it is."""
    version: int
    """The newest version that was published, which it goes on from."""
    doubtful: tuple[str, ...]
    """Files of commits after it; whether these were ratified cannot be known."""


class DeltaRecovery(Shape, frozen=True, kw_only=True):
    """The Delta tables that were taken back."""

    tables: tuple[DeltaRecovered, ...]
    """In the order of the command."""


class DeltaFile(Shape, frozen=True, kw_only=True):
    """A file of a Delta table's log that is there now."""

    key: str
    """The key."""
    version: int
    """The newest version that it stands for."""
    name: str
    """Relative to the table's root; empty if there was nothing to write."""


class DeltaRepaired(Shape, frozen=True, kw_only=True):
    """A Delta table that other engines read as they should."""

    key: str
    """The key."""
    version: int | None
    """The version that mended it; nothing if nothing was amiss."""


class DeltaCleaned(Shape, frozen=True, kw_only=True):
    """What was removed from a Delta table's log."""

    key: str
    """The key."""
    names: tuple[str, ...]
    """Relative to the table's root."""
    dry_run: bool
    """Whether nothing was removed in fact."""


class DeltaVersion(Shape, frozen=True, kw_only=True):
    """A version of a Delta table."""

    version: int
    """Its number."""
    time: datetime | None
    """When it was committed, if it says so."""
    operation: str
    """What was done, in the writer's words; empty if it did not say."""
    published: bool
    """Whether it is in the table's own log."""
    info: dict[str, Any]
    """All that its writer had to say."""

    @classmethod
    def of(cls, one: PastVersion) -> DeltaVersion:
        return cls(
            version=one.version,
            time=one.timestamp,
            operation=one.operation,
            published=one.is_published,
            info=dict(one.info),
        )


class DeltaLog(Shape, frozen=True, kw_only=True):
    """Versions of a Delta table."""

    key: str
    """The key."""
    versions: tuple[DeltaVersion, ...]
    """Newest first."""


class DeltaRows(Shape, frozen=True, kw_only=True):
    """Rows of a Delta table."""

    key: str
    """The key."""
    version: int
    """The version that was read."""
    columns: tuple[str, ...]
    """The names of the columns."""
    rows: tuple[dict[str, Any], ...]
    """The rows, each by column. What JSON has no word for is text."""


class Completion(Shape, frozen=True, kw_only=True):
    """A script for a shell."""

    shell: str
    """`bash`, `zsh` or `fish`."""
    script: str
    """What the shell is to read."""


class Error(Shape, frozen=True, kw_only=True):
    """Why a command failed; on standard error, as `{"error": …}`."""

    code: str
    """Which error it is; `usage` for a command that cannot be understood, `unexpected` for a defect."""
    message: str
    """What happened and what to do, for people."""
    details: dict[str, Any]
    """The facts, such as `key`, `name`, `expected`, `found`, `conflicts`."""
    request_id: str
    """What the server's log calls the request; empty if no server answered."""

    @classmethod
    def of(cls, error: PenstockError) -> Error:
        details = {name: _detail(value) for name, value in error.details.items()}
        return cls.build(error.code, error.message, details, error.request_id)

    @classmethod
    def build(cls, code: str, message: str, details: dict[str, Any], request_id: str = "") -> Error:
        return cls(code=code, message=_valid(message), details=details, request_id=_valid(request_id))


def _valid(text: str) -> str:
    """Text without what JSON cannot carry: bytes in a path or an argument that are no characters."""
    return text.encode("utf-8", "backslashreplace").decode()


def _detail(value: Any) -> Any:
    if isinstance(value, ModelConflict):
        return Conflict.of(value)
    if isinstance(value, str | Key):
        return _valid(str(value))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {_valid(str(name)): _detail(one) for name, one in value.items()}
    if isinstance(value, Sequence):
        return [_detail(one) for one in value]
    return value if isinstance(value, int | float | bool | datetime | None) else _valid(str(value))


def encode(shape: object) -> str:
    """The text that is printed for an object."""
    return msgspec.json.format(msgspec.json.encode(shape), indent=2).decode()


class Transaction(Shape, frozen=True, kw_only=True):
    """A transaction, as it stands."""

    id: str
    """32 hexadecimal digits."""
    state: str
    """`open`, `committing`, `committed` or `aborted`."""
    target: str
    """The branch that it lands on."""
    branch: str
    """What reads and writes in it name as their branch."""
    base: str
    """The commit that it sees, beside its own writes."""
    policy: str
    """`rebase` or `snapshot`: what becomes of it if others changed the same tables."""
    isolation: str
    """`snapshot` or `serializable`: what of that which it read must be as it was when it lands."""
    begun: datetime
    """When it began."""
    expires: datetime | None
    """When its lease runs out, unless it is renewed; nothing once it does not matter any more."""
    ended: datetime | None
    """When it ended."""
    commit: str | None
    """The commit that it landed as; nothing if it wrote nothing, or has not landed."""
    who: str
    """Who began it."""
    message: str
    """What it is for, in its own words."""
    why: str
    """Why it was aborted; empty if it was not."""
    properties: dict[str, str]
    """Further facts that its program noted."""
    late: bool
    """Whether it is open, by what is known of it, and its lease has run out."""

    @classmethod
    def of(cls, one: TransactionInfo) -> Transaction:
        return cls(
            id=one.id,
            state=one.state.value,
            target=one.target,
            branch=one.branch,
            base=one.base,
            policy=one.policy.value,
            isolation=one.isolation.value,
            begun=one.begun,
            expires=one.expires,
            ended=one.ended,
            commit=one.commit or None,
            who=one.who,
            message=one.message,
            why=one.why,
            properties=one.properties,
            late=one.is_late,
        )


class ReadKey(Shape, frozen=True, kw_only=True):
    """What a transaction has read."""

    key: str | None
    """Of the table or namespace; nothing for the lake as a whole."""
    part: str | None
    """Which part of the table: a condition on its rows, or a path; nothing for all of it."""
    names: bool
    """Whether only the names at and below the key were looked at."""

    @classmethod
    def of(cls, one: Read) -> ReadKey:
        return cls(key=None if one.key is None else str(one.key), part=one.part, names=one.is_listing)


class TransactionDetails(Transaction, frozen=True, kw_only=True):
    """A transaction, with what it has read and done."""

    reads: tuple[ReadKey, ...]
    """What it has read."""
    steps: tuple[Commit, ...]
    """The commits that were made in it, newest first; none of one that was aborted."""
    changes: tuple[Change, ...]
    """What it changes, or has changed where it landed."""

    @classmethod
    def build(
        cls, one: TransactionInfo, steps: Iterable[ModelCommit], changes: Iterable[Difference]
    ) -> TransactionDetails:
        return cls(
            **msgspec.structs.asdict(Transaction.of(one)),
            reads=tuple(map(ReadKey.of, one.reads)),
            steps=tuple(map(Commit.of, steps)),
            changes=tuple(map(Change.of, changes)),
        )


class Transactions(Shape, frozen=True, kw_only=True):
    """Transactions."""

    transactions: tuple[Transaction, ...]
    """Newest first."""
