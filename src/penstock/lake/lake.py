"""A lake: what a program holds. Branches, tags, tables and history, in this process or behind a server."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.errors import InvalidName, InvalidRequest, LakeExists, LakeNotFound, NotFound, ReferenceExists
from penstock.kernel.bring import MergeOptions
from penstock.kernel.description import (
    Description,
    HistoryRule,
    new_description,
    read_description,
    require_arrived,
    require_unmoved,
    write_description,
)
from penstock.kernel.format import Format
from penstock.kernel.fsck import Checked, fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.reachable import Progress, silent
from penstock.kernel.settings import Settings
from penstock.kernel.sweep import Swept, sweep
from penstock.lake.log import Difference, Filter, changes_of, differences, walk
from penstock.lake.views import Branch, LogLine, Snapshot, Table, Tag
from penstock.metrics.meter import SILENT, Meter
from penstock.model.clock import Clock, now_us
from penstock.model.commits import Commit, CommitMeta
from penstock.model.content import AnyContent, ManagedTable
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode, MergeResult
from penstock.model.names import check_name, parse_time_us
from penstock.model.operations import Operation, Put
from penstock.model.references import Kind
from penstock.storage.locations import check_under, normalise
from penstock.stores import DATABASE_FILE, is_local, open_store
from penstock.stores.observed import ObservedStore
from penstock.stores.port import Store

LOG_LIMIT = 100


def open_lake(
    target: str | os.PathLike[str] | Store,
    *,
    create: bool = True,
    author: str | None = None,
    settings: Settings | None = None,
    formats: Sequence[Format] = (),
    clock: Clock = now_us,
    meter: Meter = SILENT,
) -> Lake:
    """Open the lake at a directory or URL, or in a store that the caller made.

    A directory without a lake becomes one, unless ``create=False``; then it is ``LakeNotFound``. A database
    that several share is made a lake once, by ``penstock init``. ``author`` is who commits, the user of this
    process if it is not given. ``meter`` is told about every request and every call of the store.
    """
    if isinstance(target, Store):
        store, makes = target, create
    else:
        place = os.fspath(target)
        makes = create and is_local(place)
        store = open_store(place, makes, clock)
    if meter is not SILENT:
        store = ObservedStore(store, meter)
    try:
        try:
            description = read_description(store)
        except LakeNotFound:
            if not makes:
                raise
            description = _found_lake(
                store, clock, "main", _default_warehouse(store), (), settings, exist_ok=True
            )
        require_arrived(description, store)
        return Lake(Kernel(store, formats, settings, clock, meter), description, author)
    except BaseException:
        store.close()
        raise


def init_lake(
    target: str | os.PathLike[str],
    *,
    warehouse: str | None = None,
    roots: Sequence[str] = (),
    default_branch: str = "main",
    author: str | None = None,
    settings: Settings | None = None,
) -> Lake:
    """Make a lake; ``LakeExists`` if there is one.

    ``warehouse`` holds the tables that have no location of their own; ``roots`` are further places where
    tables may be.
    """
    check_name(default_branch)
    home = normalise(warehouse) if warehouse else None
    places = tuple(normalise(root) for root in roots)
    store = open_store(os.fspath(target), True, now_us)
    try:
        home = home or _default_warehouse(store)
        description = _found_lake(store, now_us, default_branch, home, places, settings, exist_ok=False)
        return Lake(Kernel(store, (), settings), description, author)
    except BaseException:
        store.close()
        raise


def place_of(store: Store) -> str:
    """Where a store is, as people say it and without secrets."""
    return store.url.removeprefix("sqlite://").removesuffix(f"/{DATABASE_FILE}")


def _default_warehouse(store: Store) -> str:
    """Beside the lake's own data, where that is in a directory or a bucket."""
    scheme, _, place = store.url.partition("://")
    if scheme == "sqlite":
        return str(Path(place).parent / "warehouse")
    if scheme in ("file", "rocksdb"):
        return str(Path(place) / "warehouse")
    bucket = place.partition("?")[0].rstrip("/")
    return f"{scheme}://{bucket}/warehouse" if scheme in ("s3", "gs", "az") else ""


def _found_lake(
    store: Store,
    clock: Clock,
    default_branch: str,
    warehouse: str,
    roots: tuple[str, ...],
    settings: Settings | None,
    exist_ok: bool,
) -> Description:
    """Make the lake's default branch and description; whoever writes the description made the lake."""
    if not exist_ok and store.reference("@lake") is not None:
        raise LakeExists(f"there is a lake at {store.url} already", url=store.url)
    description = new_description(clock(), default_branch, warehouse, roots)
    kernel = Kernel(store, (), settings, clock)
    with suppress(ReferenceExists):  # somebody else is making the lake, or was stopped while making it
        kernel.references.create(default_branch, Kind.BRANCH, NO_COMMIT)
    try:
        write_description(store, description)
    except LakeExists:
        if not exist_ok:
            raise
        return read_description(store)
    return description


class Lake:
    """A versioned catalogue of tables. Made by ``penstock.open``; may be used by many threads."""

    def __init__(self, kernel: Kernel, description: Description, author: str | None = None) -> None:
        self.kernel = kernel
        self._description = description
        self.author = author if author is not None else _user()

    def __repr__(self) -> str:
        return f"<Lake {self.url} default branch {self.default_branch!r}>"

    def __enter__(self) -> Lake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store."""
        self.kernel.close()

    @property
    def id(self) -> str:
        """The lake's own id, which stays when it moves to another store."""
        return self._description.id

    @property
    def url(self) -> str:
        """Where the lake is, without secrets."""
        return place_of(self.kernel.store)

    @property
    def forked_from(self) -> str:
        """The id of the lake that this one is a fork of; empty if it is none."""
        return self._description.forked_from

    @property
    def moving_to(self) -> str:
        """Where the lake is moving, or has moved, so that it takes no more writes here; empty if it stays."""
        sealed = read_description(self.kernel.store).sealed
        return sealed.target if sealed is not None else ""

    @property
    def default_branch(self) -> str:
        return self._description.default_branch

    @property
    def warehouse(self) -> str:
        """Where tables are that have no location of their own."""
        return self._description.warehouse

    @property
    def roots(self) -> tuple[str, ...]:
        """All places where tables may be, the warehouse first."""
        return tuple(place for place in (self.warehouse, *self._description.roots) if place)

    def _or_default(self, name: str | None) -> str:
        return self.default_branch if name is None else name

    # -- references ------------------------------------------------------------------------------------

    def branch(self, name: str | None = None) -> Branch:
        """A branch, the default one if no name is given. Whether it exists is asked when it is used."""
        return Branch(self, self._or_default(name))

    def tag(self, name: str) -> Tag:
        """A tag. Whether it exists is asked when it is used."""
        return Tag(self, name)

    def branches(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> list[Branch]:
        """Branches by name; with a ``limit`` go on ``after`` the last name."""
        return [Branch(self, one.name) for one in self._references(Kind.BRANCH, prefix, after, limit)]

    def tags(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> list[Tag]:
        """Tags by name; with a ``limit`` go on ``after`` the last name."""
        return [Tag(self, one.name) for one in self._references(Kind.TAG, prefix, after, limit)]

    def deleted(self, prefix: str = "") -> list[str]:
        """Names of deleted references whose log can still be read."""
        return [one.name for one in self._references(Kind.DELETED, prefix, "", None)]

    def _references(self, kind: Kind, prefix: str, after: str, limit: int | None) -> Iterable[Any]:
        references = self.kernel.references
        if limit is None:
            return references.all(kind, prefix, after)
        return references.list(kind, prefix, after, limit)

    def reflog(self, name: str | None = None, *, limit: int = LOG_LIMIT) -> list[LogLine]:
        """What happened to a branch or tag, newest first; also to a deleted one."""
        if limit < 0:
            raise InvalidRequest(f"a limit is not below nothing: {limit}")
        entries = self.kernel.references.log(self._or_default(name))
        return [LogLine.of(entry) for _, entry in islice(entries, limit)]

    # -- reading ---------------------------------------------------------------------------------------

    def resolve(self, revision: str | None = None) -> str:
        """The commit id that a revision such as ``main~3`` names."""
        return self._commit(revision).hex()

    def _commit(self, revision: str | None) -> ObjectId:
        return self.kernel.resolve(self._or_default(revision))[0]

    def _reachable(self, revision: str | None) -> ObjectId:
        """As ``_commit``, but a commit named by its id alone must be on some branch or tag."""
        commit, reference = self.kernel.resolve(self._or_default(revision))
        if reference is None:
            self.kernel.references.require_reachable(commit)
        return commit

    def at(self, revision: str | Commit | None = None) -> Snapshot:
        """The lake at a commit: the same for ever."""
        name = revision.id if isinstance(revision, Commit) else revision
        return Snapshot(self, self._commit(name))

    def table(self, key: str | Key, ref: str | None = None) -> Table:
        """A table at a reference, the default branch if none is given."""
        return Table(self, Key.parse(key), self._or_default(ref))

    def tables(self, prefix: str | Key | None = None, ref: str | None = None) -> list[Table]:
        """The tables (and views and functions) below a namespace, or all."""
        return self.at(ref).tables(prefix)

    def show(self, revision: str | None = None) -> Commit:
        """A commit."""
        commit = self._commit(revision)
        if commit == NO_COMMIT:
            raise InvalidRequest(f"'{self._or_default(revision)}' has no commits yet")
        return Commit.of(commit, self.kernel.history.commit(commit))

    def changes(self, revision: str | None = None) -> list[Difference]:
        """What a commit changed, compared with its first parent."""
        return changes_of(self.kernel, self._commit(revision))

    def log(
        self,
        ref: str | None = None,
        *,
        table: str | Key | None = None,
        author: str | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        text: str | None = None,
        limit: int | None = LOG_LIMIT,
        after: str | None = None,
        all_parents: bool = False,
    ) -> list[Commit]:
        """Commits, newest first, that match everything given.

        ``table`` may also be a namespace. ``after`` goes on after the commit with that id, the last one of
        the page before. ``all_parents`` also shows what was merged.
        """
        chosen = Filter(
            key=Key.parse(table) if table is not None else None,
            author=author,
            since=_moment(since),
            until=_moment(until),
            text=text,
        )
        if limit is not None and limit < 0:
            raise InvalidRequest(f"a limit is not below nothing: {limit}")
        start = self._commit(ref)
        if after is None:
            commits = walk(self.kernel, start, chosen, all_parents)
        else:
            commits = self._after(self._commit(after), start, chosen, all_parents)
        return list(islice(commits, limit))

    def _after(self, last: ObjectId, start: ObjectId, chosen: Filter, all_parents: bool) -> Iterator[Commit]:
        """The commits of a log that come after a given one."""
        history = self.kernel.history
        if not all_parents and history.is_on_line(last, start):
            return walk(self.kernel, history.commit(last).parent, chosen, all_parents)
        whole = walk(self.kernel, start, Filter(since=chosen.since), all_parents)
        if not any(commit.object_id == last for commit in whole):
            raise InvalidRequest(f"commit {last.hex()} is not in the log to go on from")
        return (commit for commit in whole if chosen.matches(self.kernel, commit))

    def diff(self, before: str, after: str, prefix: str | Key | None = None) -> list[Difference]:
        """What differs between two references or commits, at a key and below it, or everywhere."""
        scope = Key.parse(prefix) if prefix is not None else None
        return differences(self.kernel, self._commit(before), self._commit(after), scope)

    # -- writing ---------------------------------------------------------------------------------------

    def commit(
        self,
        operations: Sequence[Operation],
        *,
        branch: str | None = None,
        message: str = "",
        author: str | None = None,
        properties: Mapping[str, str | Sequence[str]] | None = None,
        base: str | None = None,
        expected_head: str | None = None,
        incarnation: bytes | None = None,
        create_namespaces: bool = False,
        idempotency_key: str | None = None,
    ) -> Commit:
        """Carry out operations on a branch, all or none, and return the commit.

        ``base`` is the commit that was read: every key must still hold what it held there, else
        ``CommitConflict`` names all that changed. Without it the operations act on the branch as it is.
        ``incarnation`` (of ``branch.reference``) refuses a branch that was deleted and created anew.
        The same request under the same ``idempotency_key`` is done once, however often it is sent. Who
        sends it does not matter, but its ``base`` does: that must be a commit id that the caller kept.
        """
        for operation in operations:
            if isinstance(operation, Put):
                self._check_location(operation.content)
        outcome = self.kernel.commit(
            self._or_default(branch),
            operations,
            self.meta(message, author, properties),
            base=self._commit(base) if base is not None else None,
            expected_head=self._commit(expected_head) if expected_head is not None else None,
            incarnation=incarnation,
            create_namespaces=create_namespaces,
            key=idempotency_key,
        )
        return Commit.of(outcome.head, outcome.newest or self.kernel.history.commit(outcome.head))

    def _check_location(self, content: AnyContent | None) -> None:
        """Penstock reads and writes at a managed table's location, so that must lie below a root."""
        if isinstance(content, ManagedTable) and content.location:
            check_under(content.location, self.roots)

    def meta(
        self,
        message: str,
        author: str | None = None,
        properties: Mapping[str, str | Sequence[str]] | None = None,
    ) -> CommitMeta:
        """What a commit says about itself."""
        who = author if author is not None else self.author
        lists = {
            name: tuple(values) if isinstance(values, list | tuple) else (values,)
            for name, values in (properties or {}).items()
        }
        return CommitMeta(
            message=message, authors=(who,) if who else (), committer=self.author, properties=lists
        )

    def outcome(self, idempotency_key: str, branch: str | None = None) -> Commit | None:
        """The commit that the request with an idempotency key came to, the newest if it made several.

        ``None`` if it was not applied.
        """
        found = self.kernel.outcome(self._or_default(branch), idempotency_key)
        return Commit.of(found.head, self.kernel.history.commit(found.head)) if found else None

    def merge(
        self,
        source: str,
        into: str | None = None,
        *,
        message: str | None = None,
        author: str | None = None,
        keys: Mapping[str | Key, KeyMerge | MergeMode | str] | None = None,
        default: MergeMode | str = MergeMode.NORMAL,
        expected_head: str | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Bring what a branch, tag or commit has and another branch has not.

        One commit with the source as second parent, so that merging again only brings what is new. ``keys``
        says how to treat single keys: ``"force"``, ``"drop"``, or a ``KeyMerge`` with a given content.
        ``expected_head`` refuses the merge if the target moved. Raises ``MergeConflict``; a dry run reports
        the conflicts instead.
        """
        target = self._or_default(into)
        try:
            commit = self._reachable(source)
        except NotFound:  # a repetition is answered even if its source is gone by now
            known = self.kernel.outcome(target, idempotency_key) if idempotency_key else None
            if known is None:
                raise
            ids = tuple(one.hex() for one in known.commits)
            return MergeResult(commits=ids, head=known.head.hex(), applied=True)
        return self.kernel.merge(
            commit,
            target,
            self.meta(f"merge {source} into {target}" if message is None else message, author),
            self._options(keys, default),
            expected_head=self._commit(expected_head) if expected_head is not None else None,
            dry_run=dry_run,
            key=idempotency_key,
        )

    def transplant(
        self,
        commits: str | Sequence[str],
        onto: str | None = None,
        *,
        message: str = "",
        keys: Mapping[str | Key, KeyMerge | MergeMode | str] | None = None,
        default: MergeMode | str = MergeMode.NORMAL,
        expected_head: str | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Repeat commits on a branch, each as a commit of its own, all by one swap.

        ``commits`` are revisions, oldest first, or a range ``"dev~3..dev"`` (without its start).
        """
        return self.kernel.transplant(
            self._commits(commits),
            self._or_default(onto),
            self.meta(message),
            self._options(keys, default),
            expected_head=self._commit(expected_head) if expected_head is not None else None,
            dry_run=dry_run,
            key=idempotency_key,
        )

    def _commits(self, commits: str | Sequence[str]) -> list[ObjectId]:
        if not isinstance(commits, str):
            return [self._reachable(one) for one in commits]
        if ".." not in commits:
            return [self._reachable(commits)]
        start, _, end = commits.partition("..")
        first, last = self._commit(start), self._reachable(end)
        found: list[ObjectId] = []
        for one, _ in self.kernel.walk(last):
            if one == first:
                return found[::-1]
            found.append(one)
        if first == NO_COMMIT:
            return found[::-1]
        raise InvalidRequest(f"'{end}' does not come after '{start}' by first parents")

    def revert(
        self,
        commit: str,
        on: str | None = None,
        *,
        message: str | None = None,
        author: str | None = None,
        keys: Mapping[str | Key, KeyMerge | MergeMode | str] | None = None,
        expected_head: str | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Undo on a branch what one of its commits did, by a new commit."""
        found = self._commit(commit)
        if found == NO_COMMIT:
            raise InvalidRequest(f"'{commit}' has no commits yet")
        text = f"revert {found.hex()[:8]}: {self.kernel.history.commit(found).message}".rstrip(": ")
        return self.kernel.revert(
            found,
            self._or_default(on),
            self.meta(text if message is None else message, author),
            self._options(keys, MergeMode.NORMAL),
            expected_head=self._commit(expected_head) if expected_head is not None else None,
            dry_run=dry_run,
            key=idempotency_key,
        )

    def rebase(
        self,
        branch: str,
        onto: str | None = None,
        *,
        keys: Mapping[str | Key, KeyMerge | MergeMode | str] | None = None,
        default: MergeMode | str = MergeMode.NORMAL,
        expected_head: str | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Repeat a branch's own commits on top of another revision, and move the branch there."""
        if branch == self.default_branch:
            raise InvalidRequest(f"the default branch '{branch}' is not rebased; rebase others onto it")
        return self.kernel.rebase(
            branch,
            self._reachable(onto),
            self.meta(""),
            self._options(keys, default),
            expected_head=self._commit(expected_head) if expected_head is not None else None,
            dry_run=dry_run,
            key=idempotency_key,
        )

    def _options(
        self, keys: Mapping[str | Key, KeyMerge | MergeMode | str] | None, default: MergeMode | str
    ) -> MergeOptions:
        chosen: dict[Key, KeyMerge] = {}
        for key, how in (keys or {}).items():
            chosen[Key.parse(key)] = how if isinstance(how, KeyMerge) else KeyMerge(mode=_mode(how))
        for each in chosen.values():
            self._check_location(each.content)
        return MergeOptions(chosen, _mode(default))

    # -- care ------------------------------------------------------------------------------------------

    @property
    def history_rules(self) -> tuple[HistoryRule, ...]:
        """How much history is kept, by patterns of names. Of several that match, the last one holds."""
        return tuple(rule for rule in read_description(self.kernel.store).history if rule.ended_us is None)

    def keep_history(
        self, pattern: str = "*", *, max_commits: int | None = None, max_days: float | None = None
    ) -> None:
        """Keep so many commits, and all that are younger, of references whose names match a pattern.

        Without limits, all history is kept again. Heads and tags always stay. Older commits may be swept
        from a grace period later on; reading them is ``HistoryExpired`` then.
        """
        self.kernel.keep_history(pattern, max_commits, max_days)

    def sweep(self, *, dry_run: bool = False, progress: Progress = silent) -> Swept:
        """Remove objects that nothing leads to any more and that are older than the grace period."""
        if not dry_run:
            require_unmoved(self.kernel.store)
        return sweep(self.kernel, dry_run=dry_run, progress=progress)

    def fsck(self, progress: Progress = silent) -> Checked:
        """Check every reachable object's hash, order and shape."""
        return fsck(self.kernel, progress)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _moment(text: str | datetime | None) -> datetime | None:
    if text is None:
        return None
    if isinstance(text, datetime):
        return text if text.tzinfo else text.replace(tzinfo=UTC)
    try:
        return datetime.fromtimestamp(parse_time_us(text) / 1_000_000, UTC)
    except (OverflowError, OSError, ValueError):
        raise InvalidName(f"{text!r} is not a time that a commit can have") from None


def _mode(name: MergeMode | str) -> MergeMode:
    try:
        return MergeMode(name)
    except ValueError:
        modes = ", ".join(mode.value for mode in MergeMode)
        raise InvalidRequest(f"{name!r} is no way to merge; there are {modes}") from None
