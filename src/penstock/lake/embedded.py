"""Answering calls from a kernel in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from threading import RLock
from time import monotonic
from typing import Any, Final, TypeVar, cast

from penstock.errors import (
    AdministratorError,
    IdempotencyKeyReused,
    InvalidRequest,
    PenstockError,
    ReferenceNotFound,
    RequestError,
    Unavailable,
)
from penstock.formats.plugin import FormatPlugin
from penstock.formats.registry import make_not_installed_error
from penstock.kernel.description import (
    LakeDescription,
    lake_moved_error,
    read_description,
)
from penstock.kernel.kernel import Kernel
from penstock.kernel.lake_state import StateOverlay, find_prefix_end
from penstock.kernel.ledger import LEDGER
from penstock.kernel.objects import read_content
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.kernel.request import request_key
from penstock.lake import calls
from penstock.lake.answers import (
    CatalogEntry,
    Figures,
    LandedRequest,
    RequestCounts,
    ResolvedCommit,
)
from penstock.lake.audits import calls as audit_calls
from penstock.lake.audits.embedded import ExpectationHandlers
from penstock.lake.audits.engine import DuckDbExpectationEngine
from penstock.lake.call import commit_meta, in_transaction_error, request_digest, take_first
from penstock.lake.figures import OpenLake, gather_figures
from penstock.lake.handlers.description import DescriptionHandlers, list_roots
from penstock.lake.handlers.history import HistoryHandlers
from penstock.lake.handlers.merges import MergeHandlers
from penstock.lake.handlers.references import ReferenceHandlers
from penstock.lake.log_search import (
    find_key_ranges,
)
from penstock.lake.moved_locations import (
    answer_with_storage_locations,
    call_with_lake_locations,
    note_in_error,
)
from penstock.lake.plugins import is_foreign, list_other_plugin_types, list_plugin_types, make_plugins
from penstock.lake.transactions import calls as transaction_calls
from penstock.lake.transactions.embedded import TransactionHandlers
from penstock.model.commits import Commit
from penstock.model.content import AnyContent, ManagedTable
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import RESERVED, Key
from penstock.model.operations import Change, Put
from penstock.model.references import Kind
from penstock.storage.locations import check_under, is_under
from penstock.storage.moved_roots import MovedRoots
from penstock.storage.places import Places
from penstock.stores import get_place

logger = logging.getLogger("penstock")

R = TypeVar("R")
T = TypeVar("T")

STATES_KEPT: Final = 256
"""How many commits can be read without gathering their recent changes again; a few hundred of these each."""


class Embedded:
    """A catalogue over a kernel."""

    page_max: int | None = None

    def __init__(
        self,
        kernel: Kernel,
        description: LakeDescription,
        plugins: Sequence[FormatPlugin] | None = None,
        *,
        open_lake: OpenLake,
    ) -> None:
        """``open_lake`` makes what a program holds over these calls; the figures of tables are read by it."""
        self.kernel = kernel
        self.loaded_plugins = make_plugins(lambda: self) if plugins is None else tuple(plugins)
        """Those of Penstock, and those of other packages once anything was asked of one."""
        self._has_other_plugins = self._is_caught_up = False
        kernel.formats.describe_unknown = make_not_installed_error
        kernel.formats.find_others = lambda: [plugin.rules for plugin in self.add_other_plugins()]
        self.warehouse = description.warehouse
        self.id, self.default_branch = description.id, description.default_branch
        self.note_roots(description)
        self.moved = MovedRoots(description.moved_roots)
        self._opened: Places | None = None
        self._open_lake = open_lake
        self._transaction_ways: TransactionHandlers | None = None
        self.engine = kernel.checks.engine = DuckDbExpectationEngine(self)
        self._making = RLock()
        self._states = lru_cache(STATES_KEPT)(kernel.read_state)
        self.count_requests: Callable[[], tuple[RequestCounts, ...] | None] = lambda: None
        """What requests to move branches came to. A server, which counts them, puts its own here."""
        self._history = HistoryHandlers(self)
        self._handlers_by_type: dict[type[calls.Call[Any]], Callable[[Any], Any]] = {
            **DescriptionHandlers(self).by_call,
            **ReferenceHandlers(self).by_call,
            **self._history.by_call,
            **MergeHandlers(self).by_call,
            calls.Resolve: self._resolve,
            calls.GetContents: self._get_contents,
            calls.ListEntries: self._list_entries,
            calls.CommitOperations: self._commit_operations,
            calls.GetFigures: self._gather_figures,
            calls.CountRequests: lambda _: self.count_requests(),
        }
        self._long_handlers: dict[type[calls.Call[Any]], Callable[[Any, Progress], Any]] = {}

    def do(self, call: calls.Call[R], progress: Progress = show_no_progress) -> R:
        if not self.moved.all:
            return self._run_call(call, progress)
        try:
            return answer_with_storage_locations(
                self._run_call(call_with_lake_locations(call, self.moved), progress), self.moved
            )
        except PenstockError as problem:
            note_in_error(problem, self.moved)
            raise

    def _run_call(self, call: calls.Call[R], progress: Progress) -> R:
        if call.is_long:
            return cast("R", self._find_long_handler(call)(call, progress))
        if isinstance(call, calls.WriteCall) and call.idempotency_key is not None:
            return cast("R", self._do_keyed(call))
        return cast("R", self._find_handler(call)(call))

    def _gather_figures(self, call: calls.GetFigures) -> Figures:
        return gather_figures(self, call, self._open_lake)

    def _require_unmoved(self) -> None:
        """``LakeMoved`` if the lake has moved, ``Unavailable`` if its files have since it was opened."""
        now = read_description(self.kernel.store)
        if now.sealed is not None:
            raise lake_moved_error(now.sealed, self.kernel.store)
        self.require_same_roots(now)

    def require_same_roots(self, now: LakeDescription) -> None:
        if now.moved_roots != self.moved.all:
            raise Unavailable(
                f"roots of the lake at {get_place(self.kernel.store)} were moved since this process opened "
                "it, so it would read files at their former locations\n  Open the lake again; a server has "
                "to be started again.",
                part="storage",
            )

    def _find_handler(self, call: calls.Call[Any]) -> Callable[[Any], Any]:
        if (way := self._handlers_by_type.get(type(call))) is not None:
            return way
        if type(call) in transaction_calls.ANSWERED:
            return self.transactions.ways[type(call)]
        if type(call) in audit_calls.CALLS:
            return ExpectationHandlers(self.kernel).ways[type(call)]
        plugin = self._find_loaded_plugin(lambda candidate: type(call) in candidate.calls)
        if plugin is None:
            raise make_not_installed_error(f"the lake cannot handle {type(call).__name__}")
        return plugin.handlers[type(call)]

    def _find_long_handler(self, call: calls.Call[Any]) -> Callable[[Any, Progress], Any]:
        """What answers a call that tells how far it is."""
        if not self._long_handlers:
            from penstock.lake.handlers.maintenance import (
                MaintenanceHandlers,  # few programs ask, and it takes a while
            )

            self._long_handlers = MaintenanceHandlers(self).by_call
        if (handler := self._long_handlers.get(type(call))) is not None:
            return handler
        plugin = self._find_loaded_plugin(lambda candidate: type(call) in candidate.long_handlers)
        if plugin is None:
            raise make_not_installed_error(f"the lake cannot handle {type(call).__name__}")
        return self.refuse_if_moved(plugin.long_handlers[type(call)])

    def refuse_if_moved(self, handler: Callable[[Any, Progress], T]) -> Callable[[Any, Progress], T]:
        """The same, which is refused in a lake that has moved, or whose files have: a dry run too."""

        def answer_call(call: Any, progress: Progress) -> T:
            self._require_unmoved()
            return handler(call, progress)

        return answer_call

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
        return self._find_loaded_plugin(lambda plugin: plugin.name == change.format) is not None

    def _find_loaded_plugin(self, is_meant: Callable[[FormatPlugin], bool]) -> FormatPlugin | None:
        """A plugin. Other packages are looked through if it is none that is loaded."""
        own = next(filter(is_meant, self.loaded_plugins), None)
        return own if own is not None else next(filter(is_meant, self.plugins), None)

    def add_other_plugins(self) -> tuple[FormatPlugin, ...]:
        """Make the plugins of other packages, once, and return them."""
        others: tuple[FormatPlugin, ...] = ()
        with self._making:
            if not self._has_other_plugins:
                self._has_other_plugins = True
                others = tuple(plugin(lambda: self) for plugin in list_other_plugin_types())
                self.loaded_plugins += others
        if others and self._is_caught_up:
            self._catch_up(others)  # without the lock: a plugin may ask for what is made under it
        own = list_plugin_types()
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
    def transactions(self) -> TransactionHandlers:
        """What answers calls about transactions, and ends those that were left."""
        if self._transaction_ways is None:
            self._transaction_ways = TransactionHandlers(self)
        return self._transaction_ways

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
            logger.warning(
                "the tables whose versions still have to be published could not be "
                "determined; the next write or start tries again: %r",
                problem,
            )
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

    def report_metrics(self) -> None:
        """Tell the meter what grows old by itself: versions of tables that wait to be published."""
        for plugin in self.loaded_plugins:
            plugin.report_metrics()

    def _has_tables(self) -> bool:
        """Whether a format manages tables of the default branch, or did."""
        head = self.kernel.references.get_reference(self.default_branch).head
        return head != NO_COMMIT and self._has_tables_at(head)

    def has_any_tables(self) -> bool:
        """Whether a format manages tables of any branch or tag, or did."""
        heads = {head for _, head in self.kernel.references.list_heads()} - {NO_COMMIT}
        return any(map(self._has_tables_at, heads))

    def _has_tables_at(self, commit: ObjectId) -> bool:
        return any(True for _ in self.kernel.read_state(commit).scan_entries(LEDGER, find_prefix_end(LEDGER)))

    def _do_keyed(self, call: calls.WriteCall[Any]) -> Any:
        request_key(call.idempotency_key)
        try:
            return self._find_handler(call)(call)
        except IdempotencyKeyReused:
            raise
        except RequestError:
            earlier = self._find_repeated_answer(call)
            if earlier is None:
                raise
            return earlier

    def _find_repeated_answer(self, call: calls.WriteCall[Any]) -> Any:
        """What a request came to before that cannot even be tried now: a name in it may lead nowhere."""
        if call.idempotency_key is None or calls.find_retry_safety(call) is calls.RetrySafety.READ:
            return None
        if call.fixed_key is not None or call.is_checked_again:
            return None  # what remembers it has told
        name = self.get_branch_or_default(call.target_name)
        outcome = self.kernel.find_outcome(
            name, call.idempotency_key, request_digest(call), about_itself=call.moves
        )
        if outcome is None:
            return None
        ids = tuple(commit_id.hex() for commit_id in outcome.commits)
        return call.recover(self.do, LandedRequest(commits=ids, head=outcome.head.hex()))

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

    # -- reading -------------------------------------------------------------------------------------------

    def get_branch_or_default(self, name: str | None) -> str:
        """The branch that is meant: the default one, if none is named."""
        return self.default_branch if name is None else name

    def resolve_commit(self, revision: str | None) -> ObjectId:
        """The commit that a revision names, the default branch's if none is given."""
        return self.kernel.resolve_revision(self.get_branch_or_default(revision))[0]

    def resolve_optional(self, revision: str | None) -> ObjectId | None:
        return self.resolve_commit(revision) if revision is not None else None

    def resolve_reachable(self, revision: str | None) -> ObjectId:
        """As ``resolve_commit``, but a commit named by its id alone must be on some branch or tag."""
        commit, reference = self.kernel.resolve_revision(self.get_branch_or_default(revision))
        if reference is None:
            self.kernel.references.require_reachable(commit)
        elif reference.kind is Kind.TRANSACTION:
            raise in_transaction_error(reference.name)
        return commit

    def resolve_kept_commit(self, revision: str | None, branch: str) -> ObjectId:
        """The commit that a revision names, if a sweep surely leaves its files alone, and it is for the
        writers of a branch.

        One that no reference leads to, or that has expired, may still be there, and its files are gone. What
        was written in a transaction may yet never land, so only that takes it.
        """
        commit, reference = self.kernel.resolve_revision(self.get_branch_or_default(revision))
        if reference is not None and reference.kind is Kind.TRANSACTION and reference.name != branch:
            raise in_transaction_error(reference.name)
        references = self.kernel.references
        (references.require_reachable if reference is None else references.require_kept)(commit)
        return commit

    def _resolve(self, call: calls.Resolve) -> ResolvedCommit:
        commit, reference = self.kernel.resolve_revision(self.get_branch_or_default(call.revision))
        return ResolvedCommit(commit=commit.hex(), name=reference.name if reference is not None else None)

    def read_content_at(self, commit: ObjectId, key: Key) -> AnyContent | None:
        """What a key holds at a commit."""
        self.kernel.history.read_commit(commit)  # it may have expired since
        return self._decode_content(self._states(commit).get(key.encode()))

    def _read_state(self, at: str | None) -> StateOverlay:
        commit = self.resolve_commit(at)
        self.kernel.history.read_commit(commit)  # it may have expired since
        return self._states(commit)

    def _get_contents(self, call: calls.GetContents) -> tuple[CatalogEntry, ...]:
        values = self._read_state(call.at).get_many([key.encode() for key in call.key])
        contents = ((key, self._decode_content(values.get(key.encode()))) for key in dict.fromkeys(call.key))
        return tuple(CatalogEntry(key, content) for key, content in contents if content is not None)

    def _decode_content(self, value: Any) -> AnyContent | None:
        return read_content(self.kernel.objects, value)

    def _list_entries(self, call: calls.ListEntries) -> tuple[CatalogEntry, ...]:
        return tuple(
            take_first(self._scan_entries(self._read_state(call.at), call.prefix, call.after), call.limit)
        )

    def _scan_entries(
        self, state: StateOverlay, prefix: Key | None, after: Key | None
    ) -> Iterator[CatalogEntry]:
        for start, stop in find_key_ranges(prefix):
            begin = max(start, after.encode() + b"\0") if after is not None else start
            if stop is not None and begin >= stop:
                continue
            for key, value in state.scan_entries(begin, stop):
                content = self._decode_content(value)
                if content is not None and not key.startswith(RESERVED):
                    yield CatalogEntry(Key.decode(key), content)

    # -- writing -------------------------------------------------------------------------------------------

    def _commit_operations(self, call: calls.CommitOperations) -> Commit:
        for operation in call.operations:
            if isinstance(operation, Put):
                self.check_location(operation.content)
            elif isinstance(operation, Change) and self._is_of_plugin(operation):
                raise InvalidRequest(
                    f"'{operation.key}': a {operation.format} table is not changed by lake.commit, but by "
                    "calls of its format, such as lake.delta.commit and table.files.put"
                )
        outcome = self.kernel.commit(
            self.get_branch_or_default(call.branch),
            call.operations,
            commit_meta(call.said, call.who, ""),
            base=self.resolve_optional(call.base),
            if_head=self.resolve_optional(call.if_head),
            incarnation=call.incarnation,
            create_namespaces=call.create_namespaces,
            key=call.idempotency_key,
            fingerprint=partial(request_digest, call),
        )
        return Commit.from_stored(
            outcome.head, outcome.newest or self.kernel.history.read_commit(outcome.head)
        )

    def check_location(self, content: AnyContent | None) -> None:
        """Penstock reads and writes at a managed table's location, so that must lie below a root."""
        if isinstance(content, ManagedTable) and content.location:
            self.check_and_normalise_location(content.location)

    def read_roots(self) -> tuple[str, ...]:
        """Where tables may be at this moment, by the locations that are stored."""
        self.note_roots(read_description(self.kernel.store))
        return self._roots

    def note_roots(self, description: LakeDescription) -> None:
        """Remember where tables may be."""
        self._roots = list_roots(description)

    def check_and_normalise_location(self, location: str) -> str:
        """A location as it is stored; ``LocationRefused`` if it does not lie below a root of the lake."""
        if not any(is_under(location, root) for root in self._roots):
            self.read_roots()  # one may have been added
        return check_under(location, self._roots)

    def await_published(self, branch: str, landed: Iterable[tuple[Key, AnyContent | None]]) -> None:
        """Give the publishing of tables that landed on a branch a moment, if that branch is published."""
        wait_s = self.kernel.settings.publish_wait_s
        if branch == self.default_branch and wait_s > 0:
            tables = tuple(landed)
            for plugin in self.loaded_plugins:
                plugin.await_published(tables, wait_s)
