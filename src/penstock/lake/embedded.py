"""Answering calls from a kernel in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import chain, takewhile
from threading import RLock
from time import monotonic
from typing import Any, Final, TypedDict, TypeVar, cast

import msgspec

from penstock.errors import (
    AdministratorError,
    HistoryExpired,
    IdempotencyKeyReused,
    InvalidRequest,
    PenstockError,
    ReferenceNotFound,
    RequestError,
    Unavailable,
)
from penstock.formats.plugin import FormatPlugin
from penstock.formats.registry import not_installed
from penstock.kernel import tokens
from penstock.kernel.batch import Outcome
from penstock.kernel.checks import assign_checked
from penstock.kernel.description import (
    Description,
    change_description,
    lake_moved_error,
    read_description,
    require_unmoved,
    with_room,
)
from penstock.kernel.fsck import Checked, Damage, fsck
from penstock.kernel.history import Walk
from penstock.kernel.kernel import Kernel
from penstock.kernel.ledger import LEDGER
from penstock.kernel.objects import content_of
from penstock.kernel.reachable import Progress, silent
from penstock.kernel.request import request_key
from penstock.kernel.state import Overlay, prefix_end
from penstock.kernel.sweep import Swept, sweep
from penstock.kernel.three_way import MergeOptions
from penstock.lake import calls
from penstock.lake.answers import (
    About,
    Comparison,
    Difference,
    Entry,
    Landing,
    LogLine,
    LogSearch,
    RequestCounts,
    Resolved,
    SweptTable,
)
from penstock.lake.audits import calls as audit_calls
from penstock.lake.audits.embedded import ExpectationAnswers
from penstock.lake.audits.engine import LakeEngine
from penstock.lake.call import commit_meta, first, in_transaction_error, request_digest
from penstock.lake.erase import erase
from penstock.lake.figures import gather_figures
from penstock.lake.log import (
    Filter,
    LogPages,
    changes_of,
    differences,
    matching,
    not_in_log_error,
    ranges,
    search,
)
from penstock.lake.moved_locations import answer_outside, call_inside, note_in_error
from penstock.lake.outcomes import as_left
from penstock.lake.plugins import is_foreign, make_plugins, other_plugin_types, plugin_types
from penstock.lake.restore import restore_message, restore_scope
from penstock.lake.resync import TableResync
from penstock.lake.resync_calls import Resync, Resynced, describe_ahead
from penstock.lake.table_sweep import sweep_tables
from penstock.lake.transactions import calls as transaction_calls
from penstock.lake.transactions.embedded import TransactionAnswers
from penstock.model.clock import utc
from penstock.model.commits import Commit, owned_key
from penstock.model.content import AnyContent, ManagedTable
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import RESERVED, Key
from penstock.model.merges import KeyMerge, MergeResult
from penstock.model.names import parse_revision
from penstock.model.operations import Change, Put
from penstock.model.references import Kind, Reference
from penstock.model.tokens import Token
from penstock.storage.hosts import check_host
from penstock.storage.locations import check_under, is_under, normalise
from penstock.storage.moved_roots import MovedRoots, check_added
from penstock.storage.places import Places
from penstock.stores import place_of

logger = logging.getLogger("penstock")

R = TypeVar("R")
T = TypeVar("T")

STATES_KEPT: Final = 256
"""How many commits can be read without gathering their recent changes again; a few hundred of these each."""
SETTINGS_MAX: Final = 100
SETTING_MAX_CHARS: Final = 16_384


class Embedded:
    """A catalogue over a kernel."""

    page_max: int | None = None

    def __init__(
        self, kernel: Kernel, description: Description, plugins: Sequence[FormatPlugin] | None = None
    ) -> None:
        self.kernel = kernel
        self.loaded_plugins = make_plugins(lambda: self) if plugins is None else tuple(plugins)
        """Those of Penstock, and those of other packages once anything was asked of one."""
        self._has_other_plugins = self._is_caught_up = False
        kernel.formats.describe_unknown = not_installed
        kernel.formats.find_others = lambda: [plugin.rules for plugin in self.add_other_plugins()]
        self.warehouse = description.warehouse
        self.id, self._default_branch = description.id, description.default_branch
        self._roots = _roots(description)
        self.moved = MovedRoots(description.moved_roots)
        self._opened: Places | None = None
        self._transaction_ways: TransactionAnswers | None = None
        self.engine = kernel.checks.engine = LakeEngine(self)
        self._making = RLock()
        self._states = lru_cache(STATES_KEPT)(kernel.state)
        self._log_pages = LogPages()
        self.count_requests: Callable[[], tuple[RequestCounts, ...] | None] = lambda: None
        """What requests to move branches came to. A server, which counts them, puts its own here."""
        self._handlers_by_type: dict[type[calls.Call[Any]], Callable[[Any], Any]] = {
            calls.GetAbout: self._about,
            calls.ChangeRoots: self._change_roots,
            calls.GetSetting: self._get_setting,
            calls.PutSetting: self._put_setting,
            calls.KeepHistory: self._keep_history,
            calls.SetGrace: self._set_grace,
            calls.ListTokens: self._tokens,
            calls.FindToken: self._find_token,
            calls.PutToken: self._put_token,
            calls.RevokeToken: self._revoke_token,
            calls.ListReferences: self._references,
            calls.GetReference: self._reference,
            calls.GetReferenceLog: self._reference_log,
            calls.CreateReference: self._create,
            calls.AssignReference: self._assign,
            calls.DeleteReference: self._delete,
            calls.Resolve: self._resolve,
            calls.GetContents: self._contents,
            calls.ListEntries: self._entries,
            calls.GetCommit: self._get_commit,
            calls.GetChanges: self._changes,
            calls.ListCommits: self._log,
            calls.SearchLog: self._search_log,
            calls.GetFigures: partial(gather_figures, self),
            calls.CountRequests: lambda _: self.count_requests(),
            calls.Diff: self._diff,
            calls.Compare: self._compare,
            calls.GetOutcome: self._outcome,
            calls.CommitOperations: self._commit_operations,
            calls.Merge: self._merge,
            calls.Transplant: self._transplant,
            calls.Revert: self._revert,
            calls.Restore: self._restore,
            calls.Rebase: self._rebase,
        }
        self._long_ways: dict[type[calls.Call[Any]], Callable[[Any, Progress], Any]] = {
            calls.Sweep: self._sweep,
            calls.SweepTables: self._unless_moved(self._sweep_tables),
            calls.EraseTable: self._unless_moved(partial(erase, self)),
            Resync: self._unless_moved(self._resync),
            calls.Fsck: self._fsck,
        }

    def do(self, call: calls.Call[R], progress: Progress = silent) -> R:
        if not self.moved.all:
            return self._do(call, progress)
        try:
            return answer_outside(self._do(call_inside(call, self.moved), progress), self.moved)
        except PenstockError as problem:
            note_in_error(problem, self.moved)
            raise

    def _do(self, call: calls.Call[R], progress: Progress) -> R:
        if call.is_long:
            return cast("R", self._long_handler_for(call)(call, progress))
        if isinstance(call, calls.Write) and call.idempotency_key is not None:
            return cast("R", self._do_keyed(call))
        return cast("R", self._handler_for(call)(call))

    def _require_unmoved(self) -> None:
        """``LakeMoved`` if the lake has moved, ``Unavailable`` if its files have since it was opened."""
        now = read_description(self.kernel.store)
        if now.sealed is not None:
            raise lake_moved_error(now.sealed, self.kernel.store)
        self._require_same_roots(now)

    def _require_same_roots(self, now: Description) -> None:
        if now.moved_roots != self.moved.all:
            raise Unavailable(
                f"roots of the lake at {place_of(self.kernel.store)} were moved since this process opened "
                "it, so it would read files at their former locations\n  Open the lake again; a server has "
                "to be started again.",
                part="storage",
            )

    def _handler_for(self, call: calls.Call[Any]) -> Callable[[Any], Any]:
        if (way := self._handlers_by_type.get(type(call))) is not None:
            return way
        if type(call) in transaction_calls.ANSWERED:
            return self.transactions.ways[type(call)]
        if type(call) in audit_calls.CALLS:
            return ExpectationAnswers(self.kernel).ways[type(call)]
        plugin = self._find(lambda candidate: type(call) in candidate.calls)
        if plugin is None:
            raise not_installed(f"the lake cannot handle {type(call).__name__}")
        return plugin.handlers[type(call)]

    def _long_handler_for(self, call: calls.Call[Any]) -> Callable[[Any, Progress], Any]:
        """What answers a call that tells how far it is."""
        if (handler := self._long_ways.get(type(call))) is not None:
            return handler
        plugin = self._find(lambda candidate: type(call) in candidate.long_handlers)
        if plugin is None:
            raise not_installed(f"the lake cannot handle {type(call).__name__}")
        return self._unless_moved(plugin.long_handlers[type(call)])

    def _unless_moved(self, handler: Callable[[Any, Progress], T]) -> Callable[[Any, Progress], T]:
        """The same, which is refused in a lake that has moved, or whose files have: a dry run too."""

        def answer(call: Any, progress: Progress) -> T:
            self._require_unmoved()
            return handler(call, progress)

        return answer

    def find_plugin(self, content: AnyContent | None, *, was_dropped: bool = False) -> FormatPlugin | None:
        """The plugin whose table a content is; ``None`` if it is not a table that a format keeps.

        One that was dropped is known by its type alone: less is stored of it.
        """
        for plugin in self.plugins if is_foreign(content) else self.loaded_plugins:
            if plugin.manages(content) or (was_dropped and plugin.has_type(content)):
                return plugin
        return None

    @property
    def plugins(self) -> tuple[FormatPlugin, ...]:
        """The plugins of all formats that are installed here, also of other packages."""
        self.add_other_plugins()
        return self.loaded_plugins

    def _is_of_plugin(self, change: Change) -> bool:
        return self._find(lambda plugin: plugin.name == change.format) is not None

    def _find(self, is_meant: Callable[[FormatPlugin], bool]) -> FormatPlugin | None:
        """A plugin. Other packages are looked through if it is none that is loaded."""
        own = next(filter(is_meant, self.loaded_plugins), None)
        return own if own is not None else next(filter(is_meant, self.plugins), None)

    def add_other_plugins(self) -> tuple[FormatPlugin, ...]:
        """Make the plugins of other packages, once, and return them."""
        others: tuple[FormatPlugin, ...] = ()
        with self._making:
            if not self._has_other_plugins:
                self._has_other_plugins = True
                others = tuple(plugin(lambda: self) for plugin in other_plugin_types())
                self.loaded_plugins += others
        if others and self._is_caught_up:
            self._catch_up(others)  # without the lock: a plugin may ask for what is made under it
        own = plugin_types()
        return tuple(plugin for plugin in self.loaded_plugins if type(plugin) not in own)

    # -- tables that formats manage ------------------------------------------------------------------------

    @property
    def places(self) -> Places:
        """The storage of tables. All formats share it, and it is opened when it is first asked for."""
        with self._making:
            if self._opened is None:
                self._opened = Places(self.moved)
            return self._opened

    @property
    def transactions(self) -> TransactionAnswers:
        """What answers calls about transactions, and ends those that were left."""
        if self._transaction_ways is None:
            self._transaction_ways = TransactionAnswers(self)
        return self._transaction_ways

    def _sweep(self, call: calls.Sweep, progress: Progress) -> Swept:
        require_unmoved(self.kernel.store)
        if not call.dry_run:
            self.transactions.tidy()
        return sweep(self.kernel, dry_run=call.dry_run, progress=progress)

    def _sweep_tables(self, call: calls.SweepTables, progress: Progress) -> tuple[SweptTable, ...]:
        return sweep_tables(self, call, progress) if self.has_any_tables() else ()

    def _fsck(self, call: calls.Fsck, progress: Progress) -> Checked:  # noqa: ARG002
        checks = [check for plugin in self.plugins if (check := plugin.content_check(self.kernel.objects))]
        flaws = fsck(
            self.kernel,
            progress,
            lambda key, content: chain.from_iterable(check(key, content) for check in checks),
        )
        unreadable = (damage for plugin in self.plugins for damage in plugin.unreadable_tables())
        return msgspec.structs.replace(flaws, damages=(*flaws.damages, *unreadable, *self._out_of_sync()))

    def _out_of_sync(self) -> Iterator[Damage]:
        """Tables of the default branch whose logs or folders are not what the lake knows."""
        if not self._has_tables_anywhere():
            return
        try:
            for table in TableResync(self, Resync(dry_run=True)).find():
                yield Damage(str(table.key), table.problem or describe_ahead(table))
        except (PenstockError, AttributeError, TypeError, ValueError, LookupError) as problem:
            # Where an object of another kind is in the place of one, any of these may come of it.
            logger.debug("tables could not be compared with their logs", exc_info=problem)

    def _has_tables_anywhere(self) -> bool:
        try:
            return self.has_any_tables()
        except (PenstockError, AttributeError, TypeError, ValueError, LookupError):
            return False  # what is damaged is told by the check of objects

    def _resync(self, call: Resync, progress: Progress) -> Resynced:
        return TableResync(self, call, progress).run()

    def catch_up(self) -> None:
        """Have published, in the background, what earlier processes ratified, if formats manage tables.

        A lake that is damaged, in whatever way, or has no default branch can be opened all the same: to be
        mended. ``fsck`` tells what is wrong with it.
        """
        self._is_caught_up = True
        self._catch_up(self.loaded_plugins)

    def _catch_up(self, plugins: Sequence[FormatPlugin]) -> None:
        if self.kernel.store.is_read_only:
            return
        try:
            if self._has_tables():
                for plugin in plugins:
                    plugin.catch_up()
        except ReferenceNotFound:
            pass
        except (PenstockError, AttributeError, TypeError, ValueError, LookupError) as problem:
            # Where an object of another kind is in the place of one, any of these may come of it.
            logger.warning("it is not known whether table versions are still to be published: %r", problem)
            logger.debug("the catch-up thread ended", exc_info=problem)

    def finish_background(self, timeout_s: float) -> None:
        """Wait for the publisher, the promoter and checkpoints. See ``Lake.finish_background``."""
        ends_s = monotonic() + timeout_s
        unfinished: dict[str, PenstockError | None] = {}
        for plugin in self.loaded_plugins:
            unfinished |= plugin.finish(max(0.0, ends_s - monotonic()))
        for problem in unfinished.values():
            if isinstance(problem, AdministratorError):
                raise problem
        if unfinished:
            what = "\n".join(
                f"  {work}: {reason}" if reason else f"  {work}" for work, reason in unfinished.items()
            )
            raise Unavailable(f"background work of the lake did not finish within {timeout_s:g} s\n{what}")

    def measure(self) -> None:
        """Tell the meter what grows old by itself: versions of tables that wait to be published."""
        for plugin in self.loaded_plugins:
            plugin.measure()

    def _has_tables(self) -> bool:
        """Whether a format manages tables of the default branch, or did."""
        head = self.kernel.references.get(self._default_branch).head
        return head != NO_COMMIT and self._has_tables_at(head)

    def has_any_tables(self) -> bool:
        """Whether a format manages tables of any branch or tag, or did."""
        heads = {head for _, head in self.kernel.references.heads()} - {NO_COMMIT}
        return any(map(self._has_tables_at, heads))

    def _has_tables_at(self, commit: ObjectId) -> bool:
        return any(True for _ in self.kernel.state(commit).scan(LEDGER, prefix_end(LEDGER)))

    def _do_keyed(self, call: calls.Write[Any]) -> Any:
        request_key(call.idempotency_key)
        try:
            return self._handler_for(call)(call)
        except IdempotencyKeyReused:
            raise
        except RequestError:
            earlier = self._repeated_answer(call)
            if earlier is None:
                raise
            return earlier

    def _repeated_answer(self, call: calls.Write[Any]) -> Any:
        """What a request came to before that cannot even be tried now: a name in it may lead nowhere."""
        if call.idempotency_key is None or calls.retry_of(call) is calls.Retry.READ:
            return None
        if call.fixed_key is not None:
            return None  # what remembers it has told
        name = self.or_default(call.target_name)
        outcome = self.kernel.outcome(
            name, call.idempotency_key, request_digest(call), about_itself=call.moves
        )
        if outcome is None:
            return None
        ids = tuple(commit_id.hex() for commit_id in outcome.commits)
        return call.recover(self.do, Landing(commits=ids, head=outcome.head.hex()))

    def close(self) -> None:
        self.stop_background()
        self.kernel.close()

    def stop_background(self) -> None:
        """Publish and promote what was committed here, for as long as the settings say, and then no more.

        The store stays open, for a caller that has it for other purposes too.
        """
        ends_s = monotonic() + self.kernel.settings.publish_close_s
        for plugin in self.loaded_plugins:
            plugin.close(max(0.0, ends_s - monotonic()))
        if self._opened is not None:
            self._opened.close()

    # -- the lake itself -----------------------------------------------------------------------------------

    def _about(self, _: calls.GetAbout) -> About:
        return self._about_lake(read_description(self.kernel.store))

    def _about_lake(self, description: Description) -> About:
        self._require_same_roots(description)
        grace = self.kernel.graces.of_writers()
        return About(
            id=description.id,
            url=place_of(self.kernel.store),
            default_branch=description.default_branch,
            created=utc(description.created_us),
            warehouse=description.warehouse,
            roots=_roots(description) + _separate_roots(description),
            forked_from=description.forked_from,
            moving_to=description.sealed.target if description.sealed is not None else "",
            history_rules=tuple(rule for rule in description.history if rule.ended_us is None),
            grace_s=grace.grace_s,
            data_grace_days=grace.data_grace_days,
            moved_roots=description.moved_roots,
        )

    def _change_roots(self, call: calls.ChangeRoots) -> About:
        for root in call.add:
            check_host(root)
        added = [normalise(root) for root in call.add]
        removed = {normalise(root) for root in call.remove}

        def change(lake: Description) -> Description:
            if lake.warehouse in removed:
                raise InvalidRequest(f"{lake.warehouse} is the lake's warehouse, which cannot be removed")
            if missing := removed - set(lake.roots):
                raise InvalidRequest(f"not a root of the lake: {', '.join(sorted(missing))}")
            check_added(lake.moved_roots, (root for root in added if root not in lake.roots))
            roots = dict.fromkeys((*(root for root in lake.roots if root not in removed), *added))
            return with_room(lake, msgspec.structs.replace(lake, roots=tuple(roots)))

        changed = change_description(self.kernel.store, self.kernel.settings, change)
        self._roots = _roots(changed)
        return self._about_lake(changed)

    def _get_setting(self, call: calls.GetSetting) -> str | None:
        return read_description(self.kernel.store).settings.get(call.name)

    def _put_setting(self, call: calls.PutSetting) -> str | None:
        if not 0 < len(call.name) <= 100 or not call.name.isprintable():
            raise InvalidRequest("the name of a setting must have 1 to 100 printable characters")
        if call.value is not None and len(call.value) > SETTING_MAX_CHARS:
            raise InvalidRequest(f"a setting can have at most {SETTING_MAX_CHARS} characters")
        before: str | None = None

        def change(lake: Description) -> Description:
            nonlocal before
            before = lake.settings.get(call.name)
            settings = {name: value for name, value in lake.settings.items() if name != call.name}
            if call.value is not None:
                settings[call.name] = call.value
            if len(settings) > SETTINGS_MAX:
                raise InvalidRequest(f"a lake can have at most {SETTINGS_MAX} settings")
            return with_room(lake, msgspec.structs.replace(lake, settings=settings))

        change_description(self.kernel.store, self.kernel.settings, change)
        return before

    def _keep_history(self, call: calls.KeepHistory) -> None:
        self.kernel.keep_history(call.pattern, call.max_commits, call.max_days)

    def _set_grace(self, call: calls.SetGrace) -> About:
        self.kernel.set_grace(call.grace_s, call.data_grace_days)
        return self._about(calls.GetAbout())

    def _tokens(self, _: calls.ListTokens) -> tuple[Token, ...]:
        return tuple(tokens.tokens(self.kernel.store))

    def _find_token(self, call: calls.FindToken) -> Token | None:
        return tokens.find_token(self.kernel.store, call.id)

    def _put_token(self, call: calls.PutToken) -> Token:
        token = Token(
            id=call.id,
            name=call.name,
            secret_hash=call.secret_hash,
            grants=call.grants,
            created=utc(self.kernel.clock()),
            expires=call.expires,
        )
        return tokens.put_token(self.kernel.store, self.kernel.settings, token, call.replaces)

    def _revoke_token(self, call: calls.RevokeToken) -> Token:
        return tokens.revoke_token(self.kernel.store, self.kernel.settings, call.id)

    # -- references ----------------------------------------------------------------------------------------

    def _references(self, call: calls.ListReferences) -> tuple[Reference, ...]:
        if call.kind not in (Kind.BRANCH, Kind.TAG, Kind.DELETED):
            raise InvalidRequest(f"unknown kind of reference '{call.kind}'")
        references = self.kernel.references
        if call.limit is None:
            return tuple(references.all(call.kind, call.prefix, call.after))
        return tuple(references.list(call.kind, call.prefix, call.after, call.limit))

    def _reference(self, call: calls.GetReference) -> Reference:
        return self.kernel.references.get(call.name)

    def _reference_log(self, call: calls.GetReferenceLog) -> tuple[LogLine, ...]:
        entries = (entry for _, entry in self.kernel.references.log(call.name, call.before))
        return tuple(LogLine.of(entry) for entry in first(entries, call.limit))

    def _create(self, call: calls.CreateReference) -> Reference:
        reference = self.kernel.references.create(
            call.name, call.kind, self._reachable(call.at), who=call.who, **_key_of(call)
        )
        return as_left(reference)

    def _assign(self, call: calls.AssignReference) -> Reference:
        moved = assign_checked(
            self.kernel,
            call.name,
            self._reachable(call.to),
            kind=call.kind,
            expected=self._resolve_optional(call.expected),
            who=call.who,
            **_key_of(call),
        )
        return as_left(moved)

    def _delete(self, call: calls.DeleteReference) -> Reference:
        deleted = self.kernel.references.delete(
            call.name,
            kind=call.kind,
            expected=self._resolve_optional(call.expected),
            who=call.who,
            **_key_of(call),
        )
        return as_left(deleted, is_deleted=True)

    # -- reading -------------------------------------------------------------------------------------------

    def or_default(self, name: str | None) -> str:
        """The branch that is meant: the default one, if none is named."""
        return self._default_branch if name is None else name

    def commit_of(self, revision: str | None) -> ObjectId:
        """The commit that a revision names, the default branch's if none is given."""
        return self.kernel.resolve(self.or_default(revision))[0]

    def _resolve_optional(self, revision: str | None) -> ObjectId | None:
        return self.commit_of(revision) if revision is not None else None

    def _reachable(self, revision: str | None) -> ObjectId:
        """As ``commit_of``, but a commit named by its id alone must be on some branch or tag."""
        commit, reference = self.kernel.resolve(self.or_default(revision))
        if reference is None:
            self.kernel.references.require_reachable(commit)
        elif reference.kind is Kind.TRANSACTION:
            raise in_transaction_error(reference.name)
        return commit

    def kept_commit(self, revision: str | None, branch: str) -> ObjectId:
        """The commit that a revision names, if a sweep surely leaves its files alone, and it is for the
        writers of a branch.

        One that no reference leads to, or that has expired, may still be there, and its files are gone. What
        was written in a transaction may yet never land, so only that takes it.
        """
        commit, reference = self.kernel.resolve(self.or_default(revision))
        if reference is not None and reference.kind is Kind.TRANSACTION and reference.name != branch:
            raise in_transaction_error(reference.name)
        references = self.kernel.references
        (references.require_reachable if reference is None else references.require_kept)(commit)
        return commit

    def _resolve(self, call: calls.Resolve) -> Resolved:
        commit, reference = self.kernel.resolve(self.or_default(call.revision))
        return Resolved(commit=commit.hex(), name=reference.name if reference is not None else None)

    def content_at(self, commit: ObjectId, key: Key) -> AnyContent | None:
        """What a key holds at a commit."""
        self.kernel.history.commit(commit)  # it may have expired since
        return self._content(self._states(commit).get(key.encode()))

    def _state(self, at: str | None) -> Overlay:
        commit = self.commit_of(at)
        self.kernel.history.commit(commit)  # it may have expired since
        return self._states(commit)

    def _contents(self, call: calls.GetContents) -> tuple[Entry, ...]:
        values = self._state(call.at).get_many([key.encode() for key in call.key])
        contents = ((key, self._content(values.get(key.encode()))) for key in dict.fromkeys(call.key))
        return tuple(Entry(key, content) for key, content in contents if content is not None)

    def _content(self, value: Any) -> AnyContent | None:
        return content_of(self.kernel.objects, value)

    def _entries(self, call: calls.ListEntries) -> tuple[Entry, ...]:
        return tuple(first(self._scan(self._state(call.at), call.prefix, call.after), call.limit))

    def _scan(self, state: Overlay, prefix: Key | None, after: Key | None) -> Iterator[Entry]:
        for start, stop in ranges(prefix):
            begin = max(start, after.encode() + b"\0") if after is not None else start
            if stop is not None and begin >= stop:
                continue
            for key, value in state.scan(begin, stop):
                content = self._content(value)
                if content is not None and not key.startswith(RESERVED):
                    yield Entry(Key.decode(key), content)

    def _get_commit(self, call: calls.GetCommit) -> Commit:
        commit = self.commit_of(call.revision)
        if commit == NO_COMMIT:
            raise InvalidRequest(f"'{call.revision}' has no commits yet")
        return Commit.of(commit, self.kernel.history.commit(commit))

    def _changes(self, call: calls.GetChanges) -> tuple[Difference, ...]:
        changes = changes_of(self.kernel, self.commit_of(call.revision), call.after)
        return tuple(first(changes, call.limit))

    def _diff(self, call: calls.Diff) -> tuple[Difference, ...]:
        before, after = self.commit_of(call.before), self.commit_of(call.to)
        changes = differences(self.kernel, before, after, call.prefix, call.after)
        return tuple(first(changes, call.limit))

    def _log(self, call: calls.ListCommits) -> tuple[Commit, ...]:
        chosen = Filter(
            key=call.table, author=call.author, since=call.since, until=call.until, text=call.text
        )
        start = self.commit_of(call.ref)
        last = self.commit_of(call.after) if call.after is not None else None
        commits = self._walk_after(start, last, call.all_parents)
        page = tuple(first(matching(self.kernel, commits, chosen, call.all_parents), call.limit))
        if call.all_parents and call.limit is not None and page:
            self._log_pages.keep(start, page[-1].object_id, commits)
        return page

    def _search_log(self, call: calls.SearchLog) -> LogSearch:
        chosen = Filter(
            key=call.table, author=call.author, since=call.since, until=call.until, text=call.text
        )
        start = self.commit_of(call.ref)
        last = self.commit_of(call.after) if call.after is not None else None
        commits = self._walk_after(start, last, call.all_parents)
        page = search(
            self.kernel,
            commits,
            chosen,
            all_parents=call.all_parents,
            limit=call.limit,
            within=call.within,
        )
        if call.all_parents and page.reached is not None:
            self._log_pages.keep(start, bytes.fromhex(page.reached), commits)
        return page

    def _walk_after(self, start: ObjectId, last: ObjectId | None, all_parents: bool) -> Walk:
        """The commits of a log, all or those that come after a given one."""
        if last is None:
            return self.kernel.walk(start, all_parents)
        if all_parents:
            return self._log_pages.after(self.kernel, start, last)
        if not self.kernel.history.is_on_line(last, start):
            raise not_in_log_error(last)
        return self.kernel.walk(self.kernel.history.commit(last).parent)

    def _compare(self, call: calls.Compare) -> Comparison:
        history = self.kernel.history
        first, other = self.commit_of(call.one), self.commit_of(call.other)
        bases = history.merge_bases(first, other)
        return Comparison(
            base=(bases[0] if bases else NO_COMMIT).hex(),
            ahead=len(history.only_in(first, other)),
            behind=len(history.only_in(other, first)),
        )

    def _outcome(self, call: calls.GetOutcome) -> Landing | None:
        name = self.or_default(call.branch)
        if call.who:
            call = msgspec.structs.replace(call, key=owned_key(call.key, call.who), who=None)
        outcome = self.kernel.outcome(name, call.key) if call.asked is None else self._outcome_of(name, call)
        if outcome is None:
            return None
        commit: Commit | None = None
        if outcome.head != NO_COMMIT:
            with suppress(HistoryExpired):
                commit = Commit.of(outcome.head, self.kernel.history.commit(outcome.head))
        ids = tuple(commit_id.hex() for commit_id in outcome.commits)
        return Landing(commits=ids, head=outcome.head.hex(), commit=commit)

    def _outcome_of(self, name: str, call: calls.GetOutcome) -> Outcome | None:
        """What a very request came to; its key may have been used for others."""
        for about_itself in (False, True):
            with suppress(IdempotencyKeyReused):
                outcome = self.kernel.outcome(name, call.key, call.asked, about_itself=about_itself)
                if outcome is not None:
                    return outcome
        return None

    # -- writing -------------------------------------------------------------------------------------------

    def _commit_operations(self, call: calls.CommitOperations) -> Commit:
        for operation in call.operations:
            if isinstance(operation, Put):
                self._check_location(operation.content)
            elif isinstance(operation, Change) and self._is_of_plugin(operation):
                raise InvalidRequest(
                    f"'{operation.key}': a {operation.format} table is not changed by lake.commit, but by "
                    "calls of its format, such as lake.delta.commit and table.files.put"
                )
        outcome = self.kernel.commit(
            self.or_default(call.branch),
            call.operations,
            commit_meta(call.said, call.who, ""),
            base=self._resolve_optional(call.base),
            if_head=self._resolve_optional(call.if_head),
            incarnation=call.incarnation,
            create_namespaces=call.create_namespaces,
            key=call.idempotency_key,
            fingerprint=partial(request_digest, call),
        )
        return Commit.of(outcome.head, outcome.newest or self.kernel.history.commit(outcome.head))

    def _check_location(self, content: AnyContent | None) -> None:
        """Penstock reads and writes at a managed table's location, so that must lie below a root."""
        if isinstance(content, ManagedTable) and content.location:
            self.checked_location(content.location)

    def read_roots(self) -> tuple[str, ...]:
        """Where tables may be at this moment, by the locations that are stored."""
        self._roots = _roots(read_description(self.kernel.store))
        return self._roots

    def checked_location(self, location: str) -> str:
        """A location as it is stored; ``LocationRefused`` if it does not lie below a root of the lake."""
        if not any(is_under(location, root) for root in self._roots):
            self.read_roots()  # one may have been added
        return check_under(location, self._roots)

    def _merge(self, call: calls.Merge) -> MergeResult:
        target = self.or_default(call.into)
        commit = self._reachable(call.source)
        merged = self.kernel.merge(
            commit,
            target,
            commit_meta(call.said, call.who, f"merge {call.source} into {target}"),
            self._options(call),
            if_head=self._resolve_optional(call.if_head),
            dry_run=call.dry_run,
            key=call.idempotency_key,
            fingerprint=partial(request_digest, call),
        )
        if merged.applied:
            self.await_published(target, ((merged_key.key, merged_key.after) for merged_key in merged.keys))
        return merged

    def await_published(self, branch: str, landed: Iterable[tuple[Key, AnyContent | None]]) -> None:
        """Give the publishing of tables that landed on a branch a moment, if that branch is published."""
        wait_s = self.kernel.settings.publish_wait_s
        if branch == self._default_branch and wait_s > 0:
            tables = tuple(landed)
            for plugin in self.loaded_plugins:
                plugin.await_published(tables, wait_s)

    def _transplant(self, call: calls.Transplant) -> MergeResult:
        return self.kernel.transplant(
            self._commits(call.commits),
            self.or_default(call.onto),
            commit_meta(call.said, call.who, ""),
            self._options(call),
            if_head=self._resolve_optional(call.if_head),
            dry_run=call.dry_run,
            key=call.idempotency_key,
            fingerprint=partial(request_digest, call),
        )

    def _commits(self, commits: Sequence[str]) -> list[ObjectId]:
        if len(commits) != 1 or ".." not in commits[0]:
            return [self._reachable(revision) for revision in commits]
        start, _, end = commits[0].partition("..")
        first, last = self.commit_of(start), self._reachable(end)
        if first != NO_COMMIT and not self.kernel.history.is_on_line(first, last):
            raise InvalidRequest(f"'{start}' is not a first-parent ancestor of '{end}'")
        walk = (commit_id for commit_id, _ in self.kernel.walk(last))
        return [*takewhile(lambda commit_id: commit_id != first, walk)][::-1]

    def _revert(self, call: calls.Revert) -> MergeResult:
        commit_id, reference = self.kernel.resolve(call.commit)
        if commit_id == NO_COMMIT:
            raise InvalidRequest(f"'{call.commit}' has no commits yet")
        if reference is not None and reference.kind is Kind.TRANSACTION and reference.name != call.on:
            raise in_transaction_error(reference.name)
        text = f"revert {commit_id.hex()[:8]}: {self.kernel.history.commit(commit_id).message}".rstrip(": ")
        return self.kernel.revert(
            commit_id,
            self.or_default(call.on),
            commit_meta(call.said, call.who, text),
            self._options(call),
            if_head=self._resolve_optional(call.if_head),
            dry_run=call.dry_run,
            key=call.idempotency_key,
            fingerprint=partial(request_digest, call),
        )

    def _restore(self, call: calls.Restore) -> MergeResult:
        branch, scope = self.or_default(call.branch), restore_scope(call)
        to = call.version if call.version is not None else self._require_restorable(call.to or "", branch)
        restored = self.kernel.restore(
            to,
            branch,
            scope,
            commit_meta(call.said, call.who, restore_message(call, to)),
            if_head=self._resolve_optional(call.if_head),
            dry_run=call.dry_run,
            key=call.idempotency_key,
            fingerprint=partial(request_digest, call),
        )
        if restored.applied:
            self.await_published(branch, ((merged_key.key, merged_key.after) for merged_key in restored.keys))
        return restored

    def _require_restorable(self, revision: str, branch: str) -> ObjectId:
        """The commit whose state is wanted; if it has expired, the error says from when on there is any."""
        try:
            commit_id, reference = self.kernel.resolve(revision)
            self.kernel.references.require_kept(commit_id)
            named = parse_revision(revision)
            if commit_id == NO_COMMIT and (named.name is not None or named.steps):
                # The empty lake is meant only by who gives its id: to drop all tables takes more than a slip.
                raise HistoryExpired("nothing had been committed by then")
        except HistoryExpired as expired:
            oldest_id, oldest = self.kernel.oldest_kept(self.kernel.references.get(branch).head)
            time = utc(oldest.time_us).isoformat(timespec="seconds")
            raise HistoryExpired(
                f"'{revision}' cannot be restored: {expired.message}\n  The oldest state that can be "
                f"restored on '{branch}' is of {time}, commit {oldest_id.hex()[:8]}.",
                **{**expired.details, "oldest": oldest_id.hex(), "oldest_time": time},
            ) from None
        if reference is None:
            self.kernel.references.require_reachable(commit_id)
        elif reference.kind is Kind.TRANSACTION and reference.name != branch:
            raise in_transaction_error(reference.name)
        return commit_id

    def _rebase(self, call: calls.Rebase) -> MergeResult:
        if call.branch == self._default_branch:
            raise InvalidRequest(
                f"the default branch '{call.branch}' cannot be rebased; rebase others onto it"
            )
        return self.kernel.rebase(
            call.branch,
            self._reachable(call.onto),
            commit_meta(calls.CommitDescription(), call.who, ""),
            self._options(call),
            if_head=self._resolve_optional(call.if_head),
            dry_run=call.dry_run,
            key=call.idempotency_key,
            fingerprint=partial(request_digest, call),
        )

    def _options(self, call: calls.MergeCall) -> MergeOptions:
        chosen: Mapping[Key, KeyMerge] = {Key.parse(key): how for key, how in call.keys.items()}
        for key_merge in chosen.values():
            self._check_location(key_merge.content)
        return MergeOptions(dict(chosen), call.default)


def _key_of(call: calls.Write[Any]) -> _Keyed:
    """What a reference is told of the key of a request."""
    if call.idempotency_key is None:
        return {}
    return {"key": call.idempotency_key, "asked": request_digest(call)}


class _Keyed(TypedDict, total=False):
    key: str
    asked: bytes


def _roots(description: Description) -> tuple[str, ...]:
    return tuple(place for place in (description.warehouse, *description.roots) if place)


def _separate_roots(description: Description) -> tuple[str, ...]:
    """Where files lie that were moved away from below a root that stays."""
    roots = _roots(description)
    return tuple(
        moved_root.new
        for moved_root in description.moved_roots
        if moved_root.new != moved_root.old
        and any(moved_root.old != root and is_under(moved_root.old, root) for root in roots)
    )
