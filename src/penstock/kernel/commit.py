"""Commits: puts, deletes, checks and formats' changes of many keys, all or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final
from uuid import UUID, uuid4

from penstock.errors import CommitConflict, CommitNotFound, InvalidRequest
from penstock.kernel.chain import CommitChain, CommitDraft
from penstock.kernel.edit import Edit, EditContext, LandingNotice, describe_difference
from penstock.kernel.format import Format, FormatRefused, Formats, PrepareAgain
from penstock.kernel.history import History
from penstock.kernel.lake_state import StateOverlay, open_state
from penstock.kernel.objects import read_content
from penstock.kernel.request import Request, RequestTerms
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.content import AnyContent, encode_content
from penstock.model.encoding import ObjectId, encode, hash_object
from penstock.model.keys import Key
from penstock.model.operations import Change, Delete, Operation, Put, Unchanged
from penstock.model.references import Event, Reference

OPERATIONS_MAX: Final = 100_000
FEW_OPERATIONS: Final = 8
"""With more, their keys are looked up together, with one request to the store a level of the tree."""


class CommitRequest(Request):
    """Operations on the keys of a branch.

    With a ``base``, every key must hold what it held there. Without one, the operations act on the branch as
    it is at their turn.
    """

    event = Event.COMMIT

    def __init__(
        self,
        history: History,
        formats: Formats,
        operations: Sequence[Operation],
        meta: CommitMeta,
        terms: RequestTerms,
        *,
        base: ObjectId | None = None,
        create_namespaces: bool = False,
    ) -> None:
        super().__init__(meta.authors[0] if meta.authors else meta.committer, terms)
        self._history, self._formats = history, formats
        self._operations = tuple(operations)
        self._meta, self._base, self._create_namespaces = meta.check(), base, create_namespaces
        self._checked = _check_operations(self._operations, base)
        self.needs_preparation = any(isinstance(operation, Change) for operation in self._operations)
        self._identities: dict[Key, UUID] = {}
        self._vouched: ObjectId | None = None
        """A head of the branch of which the base was found to be an ancestor."""
        self._prepared: dict[Key, Any] = {}
        self._notes: dict[Any, Any] = {}
        self._landing: LandingNotice | None = None

    @cached_property
    def _put_counts(self) -> Counter[UUID | None]:
        """How often each content id is put."""
        return Counter(o.content.id for o in self._operations if isinstance(o, Put))

    @property
    def fingerprint(self) -> bytes:
        about = (self._meta.message, self._meta.properties)  # who asks again does not matter
        how = (self._base, self.if_head, self._create_namespaces)
        return hash_object(encode(("commit", self._checked, how, about)))

    @property
    def touched_keys(self) -> set[bytes]:
        keys = {operation.key for operation in self._operations}
        return {place.encode() for key in keys for place in (key, *key.parents)}

    def prepare(self, reference: Reference) -> None:
        if self._base is not None and self._vouched is None:
            self._find_base(self._base, reference)
        changes = [operation for operation in self._operations if isinstance(operation, Change)]
        occasion = EditContext(reference, self._notes, may_read=True)
        edit = Edit(self._history.objects, self._read_state(reference.head), self._formats, occasion)
        for change in changes:
            table = edit.open_table(change.key, edit.find_content(change.key.encode()))
            try:
                self._prepared[change.key] = _require_format(self._formats, change).prepare(table, change)
            except FormatRefused as refused:
                edit.refuse_key(change.key, refused)
        for operation in self._operations:
            if isinstance(operation, Delete):
                self._prepare_delete(edit, operation.key)
        if edit.conflicts:
            raise CommitConflict(edit.conflicts)

    def _prepare_delete(self, edit: Edit, key: Key) -> None:
        content = edit.find_content(key.encode())
        managing = self._formats.find_managing_format(content)
        if managing is not None and content is not None and not self._is_moved(content.id):
            with suppress(FormatRefused):  # at its turn, if it still is
                managing.check_direct_change(edit.open_table(key, content), None)

    def _read_state(self, commit: ObjectId) -> StateOverlay:
        return open_state(self._history.objects, self._history.read_commit(commit))

    def draft_commits(self, chain: CommitChain, reference: Reference) -> list[CommitDraft]:
        base = self._check_base(chain)
        if len(self._operations) > FEW_OPERATIONS:
            chain.view.get_many(self.touched_keys)
        occasion = EditContext(reference, self._notes, may_read=False)
        edit = Edit(chain.objects, chain.view, self._formats, occasion)
        freed: dict[UUID | None, AnyContent] = {}
        deleted: set[Key] = set()
        for operation in self._operations:
            if isinstance(operation, Delete):
                self._delete_key(edit, base, operation.key, freed, deleted)
        for operation in self._operations:
            if isinstance(operation, Put):
                self._apply_put(edit, base, operation, freed, deleted)
            elif isinstance(operation, Unchanged):
                base.check_unchanged(edit, operation.key)
            elif isinstance(operation, Change):
                self._change_table(edit, operation)
        edit.check_result()
        if edit.conflicts:
            raise CommitConflict(edit.conflicts)
        if not edit.has_changes and self._may_do_nothing:
            return []
        self._landing = LandingNotice(self._formats, reference.name)
        self._landing.add_tables(edit.tables)
        return [edit.make_draft(self._meta, self.key)]

    @property
    def _may_do_nothing(self) -> bool:
        """Whether it leaves no commit if it changes nothing: a format may find all done that it is asked."""
        kinds = {type(operation) for operation in self._operations}
        return Change in kinds and kinds <= {Change, Unchanged}

    def _find_base(self, base: ObjectId, reference: Reference) -> None:
        """Find the base among all ancestors of the branch: outside of the queue, it may take long."""
        if not self._history.is_ancestor(base, reference.head):
            raise CommitNotFound(
                f"commit {base.hex()} is not in the history of branch '{reference.name}'",
                commit=base.hex(),
                name=reference.name,
            )
        self._vouched = reference.head

    def _check_base(self, chain: CommitChain) -> _ExpectedBase:
        base = self._base
        if base is not None and not chain.contains_commit(base):
            self._history.read_commit(base)
            bases = (base, self._vouched) if self._vouched is not None else (base,)
            if not any(self._history.is_on_line(base, chain.tip) for base in bases):
                self.needs_preparation, self._vouched = True, None
                raise PrepareAgain
        return _ExpectedBase(self._history, chain, base)

    def _delete_key(
        self,
        edit: Edit,
        base: _ExpectedBase,
        key: Key,
        freed: dict[UUID | None, AnyContent],
        deleted: set[Key],
    ) -> None:
        stored = key.encode()
        content = edit.find_content(stored)
        if not base.check_unchanged(edit, key):
            return
        if content is None:
            edit.conflicts.append(Conflict(ConflictKind.KEY_DOES_NOT_EXIST, key))
            return
        freed[content.id] = content
        deleted.add(key)
        edit.put_content(stored, None)
        managing = self._formats.find_managing_format(content)
        if managing is not None and not self._is_moved(content.id):
            self._check_admission(edit, managing, key, content, None)

    def _is_moved(self, identity: UUID | None) -> bool:
        """Whether this request also puts the content somewhere else."""
        return identity is not None and self._put_counts[identity] > 0

    def _apply_put(
        self,
        edit: Edit,
        base: _ExpectedBase,
        put: Put,
        freed: dict[UUID | None, AnyContent],
        deleted: set[Key],
    ) -> None:
        key, content = put.key, put.content
        recreated = key in deleted
        if not recreated and not base.check_unchanged(edit, key):
            return
        stored = key.encode()
        current = edit.find_content(stored)
        moved = content.id is not None and content.id in freed
        edit.check_object_owner(key, content, current, freed.get(content.id))
        if current is not None and current.type != content.type:
            edit.conflicts.append(describe_difference(key, content, current))
            return
        if current is not None and content.id not in (None, current.id):
            edit.conflicts.append(describe_difference(key, content, current))
            return
        if moved and freed[content.id].type != content.type:
            edit.conflicts.append(describe_difference(key, content, freed[content.id]))
            return
        if moved and self._put_counts[content.id] > 1:
            raise InvalidRequest(
                f"the commit puts the content id {content.id} under '{key}' and under another key; a "
                "content id can be under one key only",
                key=str(key),
            )
        if current is None and content.id is not None and not moved:
            edit.conflicts.append(
                Conflict(ConflictKind.KEY_DOES_NOT_EXIST, key, expected=f"the content with id {content.id}")
            )
            return
        if self._create_namespaces:
            edit.create_namespaces(key)
        edit.put_content(stored, content, self._choose_identity(key, current))
        managing = self._formats.find_managing_format(content, current)
        if managing is not None and not (moved and content == freed[content.id]):
            self._check_admission(edit, managing, key, current, content)

    def _change_table(self, edit: Edit, change: Change) -> None:
        managing, stored = _require_format(self._formats, change), change.key.encode()
        current = edit.find_content(stored)
        try:
            applied = managing.apply(
                edit.open_table(change.key, current), change, self._prepared.get(change.key)
            )
        except FormatRefused as refused:
            edit.refuse_key(change.key, refused)
            return
        if self._create_namespaces and applied.content is not None:
            edit.create_namespaces(change.key)
        edit.put_applied(stored, applied, self._choose_identity(change.key, current))
        edit.add_intent(stored, change.format, change.intent if applied.intent is None else applied.intent)

    def _choose_identity(self, key: Key, current: AnyContent | None) -> UUID:
        if current is not None and current.id is not None:
            return current.id
        return self._identities.setdefault(key, uuid4())

    def _check_admission(
        self, edit: Edit, managing: Format, key: Key, current: AnyContent | None, content: AnyContent | None
    ) -> None:
        try:
            managing.check_direct_change(edit.open_table(key, current), content)
        except FormatRefused as refused:
            edit.refuse_key(key, refused)
            return
        except PrepareAgain:
            self.needs_preparation = True
            raise
        edit.add_opaque(key.encode(), managing)

    def after_commit(self, commits: list[ObjectId]) -> None:
        if self._landing is not None:
            self._landing.notify_formats(commits)


class _ExpectedBase:
    """The commit that a writer read, if it named one."""

    def __init__(self, history: History, chain: CommitChain, commit: ObjectId | None) -> None:
        self._history, self._chain, self._commit = history, chain, commit
        self._state: StateOverlay | None = None

    def check_unchanged(self, edit: Edit, key: Key) -> bool:
        """Whether a key is as the writer saw it; if not, the conflict is noted."""
        stored = key.encode()
        if self._commit is None or self._chain.is_key_unchanged_since(self._commit, stored):
            return True
        if self._state is None:
            self._state = open_state(self._history.objects, self._history.read_commit(self._commit))
        before, now = self._state.get(stored), self._chain.view.get(stored)
        if before == now:
            return True
        objects = self._chain.objects
        edit.conflicts.append(
            describe_difference(key, read_content(objects, before), read_content(objects, now))
        )
        return False


def _require_format(formats: Formats, change: Change) -> Format:
    format_ = formats.find_format(change.format)
    if format_ is None:
        raise formats.unknown_format_error(change.format, change.key)
    return format_


def _check_operations(operations: tuple[Operation, ...], base: ObjectId | None) -> list[tuple[Any, ...]]:
    """Refuse operations that cannot be; return them in a form that can be hashed."""
    if not operations:
        raise InvalidRequest("a commit needs at least one operation")
    if len(operations) > OPERATIONS_MAX:
        raise InvalidRequest(f"a commit can have at most {OPERATIONS_MAX} operations, got {len(operations)}")
    seen: dict[Key, set[type]] = {}
    wish: list[tuple[Any, ...]] = []
    for operation in operations:
        if not isinstance(operation, Put | Delete | Unchanged | Change):
            raise InvalidRequest(
                f"a commit takes operations such as Put and Delete, got {type(operation).__name__}"
            )
        key, kind = operation.key, type(operation)
        if not isinstance(key, Key):
            raise InvalidRequest(f"expected a Key, got {type(key).__name__}: use Key.parse")
        if isinstance(operation, Put):
            wish.append((kind.__name__, key.encode(), encode_content(operation.content)))
        elif isinstance(operation, Change):
            wish.append((kind.__name__, key.encode(), operation.format, operation.intent))
        else:
            wish.append((kind.__name__, key.encode()))
        if isinstance(operation, Unchanged) and base is None:
            raise InvalidRequest(f"'{key}' must be unchanged since a base commit, but no base is given")
        kinds = seen.setdefault(key, set())
        if kind in kinds or (kinds and kinds | {kind} != {Delete, Put}):
            raise InvalidRequest(f"the request names '{key}' twice", key=str(key))
        kinds.add(kind)
    return wish
