"""Restore: setting a key, a namespace or every key to what it was at an earlier commit, by a new commit.

A restore wins over whatever is there when its turn comes. A caller who wants it refused where somebody else
was faster says so with ``if_head``. Nothing is removed from history: the commit before it has what was there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from penstock.errors import InvalidRequest, KeyNotFound
from penstock.kernel.chain import CommitChain, CommitDraft
from penstock.kernel.edit import Edit
from penstock.kernel.format import AppliedChange, Format, FormatRefused, Formats, PrepareAgain
from penstock.kernel.history import History
from penstock.kernel.lake_state import Difference, StateView, diff_commits, find_prefix_end, open_state
from penstock.kernel.ledger import find_table
from penstock.kernel.objects import Objects, read_content
from penstock.kernel.request import NextBatch
from penstock.kernel.three_way import KeySides, MergeOptions, ThreeWayApply, ThreeWayRequest, ThreeWayTerms
from penstock.model.commits import CommitMeta
from penstock.model.content import AnyContent, Namespace
from penstock.model.encoding import ObjectId, encode, hash_object
from penstock.model.keys import RESERVED, Key
from penstock.model.merges import KeyMerge
from penstock.model.objects import CommitObject, Value
from penstock.model.references import Event, Reference


class RestoreScope(NamedTuple):
    """What is restored: some keys, or a namespace with all that is below it; without either, every key."""

    keys: tuple[Key, ...] = ()
    namespace: Key | None = None
    leave: tuple[Key, ...] = ()
    """Of a namespace or of all: what stays as it is, each with all that is below it."""

    def fingerprint(self) -> list[object]:
        namespace = None if self.namespace is None else self.namespace.encode()
        return [*(sorted(key.encode() for key in keys) for keys in (self.keys, self.leave)), namespace]

    def leaves_unchanged(self, stored: bytes) -> bool:
        """Whether a stored key stays as it is."""
        prefixes = (key.encode() for key in self.leave)
        return any(stored == prefix or stored.startswith(prefix + b"\0") for prefix in prefixes)


class RestoreRequest(ThreeWayRequest):
    """Set keys to what they were at an earlier commit, or one table to an earlier version of its own."""

    event = Event.COMMIT
    needs_preparation = True

    def __init__(
        self,
        history: History,
        formats: Formats,
        to: ObjectId | int,
        scope: RestoreScope,
        meta: CommitMeta,
        terms: ThreeWayTerms,
    ) -> None:
        """``to`` is a commit; or a version of the one table that ``scope`` names."""
        super().__init__(history, formats, meta, MergeOptions(), terms)
        self._to, self._scope = to, scope
        if isinstance(to, int) and len(scope.keys) != 1:
            raise InvalidRequest("a version belongs to one table: name that table, or restore to a commit")

    @property
    def fingerprint(self) -> bytes:
        wish = ("restore", self._to, self._scope.fingerprint(), self.if_head, self._meta.message)
        return hash_object(encode(wish))

    def prepare(self, reference: Reference) -> None:
        if self.may_read:
            return
        head = self._history.read_commit(reference.head)
        view = open_state(self._history.objects, head)
        managed = self._select_managed_changes(
            self._find_changes(self._history.objects, view, head, reference)
        )
        if managed:
            edit = self._begin_edit(self._history.objects, view, reference, may_read=True)
            with suppress(PrepareAgain):
                self._make_apply(edit).apply_difference(managed, {})

    def draft_commits(self, chain: CommitChain, reference: Reference) -> list[CommitDraft]:
        if chain.has_drafts and not self._scope.keys:
            raise NextBatch  # what differs is told by commits, and some have no id yet
        changes = self._find_changes(chain.objects, chain.view, chain.commit, reference)
        edit = self._begin_edit(chain.objects, chain.view, reference, self.may_read)
        restoring = self._make_apply(edit)
        restoring.apply_difference(changes, {})
        return self._make_commit_drafts(edit, restoring, reference, "cannot restore")

    def _make_apply(self, edit: Edit) -> _RestoreApply:
        return _RestoreApply(edit, self._formats, self._to if isinstance(self._to, int) else None)

    # -- what differs --------------------------------------------------------------------------------------

    def _find_changes(
        self, objects: Objects, view: StateView, head: CommitObject, reference: Reference
    ) -> Difference:
        """What each key holds that is to become another: now, and at the commit that is wanted."""
        if isinstance(self._to, int):
            return self._find_version_change(objects, view, reference)
        commit = self._history.read_commit(self._to)
        then = open_state(self._history.objects, commit)
        if self._scope.keys:
            return dict(sorted(self._find_key_changes(objects, view, then, reference)))
        start, stop = find_prefix_end(RESERVED) or b"", None
        parents: dict[bytes, tuple[Value | None, Value | None]] = {}
        if (namespace := self._scope.namespace) is not None:
            self._check_namespace(objects, then, namespace)
            parents = dict(_find_missing_namespaces(view, then, namespace))
            start = namespace.encode()
            stop = find_prefix_end(start + b"\0")
        changes = parents | diff_commits(objects, head, commit, start, stop)
        return {key: changes[key] for key in sorted(changes) if not self._scope.leaves_unchanged(key)}

    def _find_version_change(self, objects: Objects, view: StateView, reference: Reference) -> Difference:
        (key,) = self._scope.keys
        value = view.get(key.encode())
        content = read_content(objects, value)
        if content is None:
            raise KeyNotFound(
                f"there is no '{key}' on '{reference.name}', so it has no versions; to restore a dropped "
                "table, restore it to a commit",
                key=str(key),
            )
        if self._formats.find_managing_format(content) is None:
            raise InvalidRequest(
                f"the lake keeps no versions of '{key}'; restore it to a commit or to a time",
                key=str(key),
            )
        # A version is of this table: what takes its place meanwhile has versions of its own.
        identity = self.notes.setdefault(("restored table", key), content.id)
        if identity != content.id:
            raise KeyNotFound(
                f"'{key}' was dropped and created again while it was being restored, so it is another "
                "table now; "
                "nothing was restored",
                key=str(key),
            )
        return {key.encode(): (value, value)}

    def _find_key_changes(
        self, objects: Objects, view: StateView, then: StateView, reference: Reference
    ) -> Iterator[tuple[bytes, tuple[Value | None, Value | None]]]:
        assert isinstance(self._to, bytes)
        for key in self._scope.keys:
            stored = key.encode()
            now, after = view.get(stored), then.get(stored)
            contents = [read_content(objects, value) for value in (now, after)]
            if any(isinstance(content, Namespace) for content in contents):
                raise InvalidRequest(
                    f"'{key}' is a namespace; to restore everything in it: --namespace {key}, or "
                    f"namespace='{key}'",
                    key=str(key),
                )
            if after is None:
                after = self._find_renamed_table(objects, then, contents[0])
            if after is None:
                hint = "" if now is None else f"; to remove it, drop it: penstock delete {key}"
                raise KeyNotFound(
                    f"there was no '{key}' at {self._to.hex()[:8]}{hint}",
                    key=str(key),
                    commit=self._to.hex(),
                    ref=reference.name,
                )
            yield from _find_missing_namespaces(view, then, key)
            yield stored, (now, after)

    def _find_renamed_table(self, objects: Objects, then: StateView, now: AnyContent | None) -> Value | None:
        """What a table was that has another key now than it had then."""
        if now is None or now.id is None or self._formats.find_managing_format(now) is None:
            return None
        key = find_table(lambda stored: read_content(objects, then.get(stored)), now.id)
        return None if key is None else then.get(key.encode())

    def _check_namespace(self, objects: Objects, then: StateView, namespace: Key) -> None:
        assert isinstance(self._to, bytes)
        if not isinstance(read_content(objects, then.get(namespace.encode())), Namespace):
            raise KeyNotFound(
                f"there was no namespace '{namespace}' at {self._to.hex()[:8]}", key=str(namespace)
            )


def _find_missing_namespaces(
    view: StateView, then: StateView, key: Key
) -> Iterator[tuple[bytes, tuple[Value | None, Value | None]]]:
    """The namespaces above a key that have gone since."""
    for parent in key.parents:
        stored = parent.encode()
        if view.get(stored) is None:
            yield stored, (None, then.get(stored))


class _RestoreApply(ThreeWayApply):
    """Every key is set to what is wanted, whatever it holds."""

    def __init__(self, edit: Edit, formats: Formats, version: int | None) -> None:
        super().__init__(edit, formats, MergeOptions())
        self._version = version

    def _decide_key(self, meeting: KeySides, how: KeyMerge) -> None:  # noqa: ARG002
        conflicts_before = len(self._edit.conflicts)
        if self._version is not None:
            self._restore_version(meeting, self._version)
        elif meeting.now != meeting.wanted:
            self._set_key(meeting)
        if len(self._edit.conflicts) == conflicts_before:
            self._check_files(meeting, self._version)

    def _restore_version(self, meeting: KeySides, version: int) -> None:
        content = self._decode_content(meeting.now)
        managing = self._formats.find_managing_format(content)
        assert managing is not None, "or there is nothing to restore"
        table = self._edit.open_table(meeting.key, content)

        def restore_table() -> AppliedChange:
            self._refuse_erased(content, version=version)
            return managing.restore_version(table, version)

        self._put_restored(meeting, managing, restore_table)

    def _set_key(self, meeting: KeySides) -> None:
        now, after = self._decode_content(meeting.now), self._decode_content(meeting.wanted)
        if (reason := self._explain_refusal(now, after)) is not None:
            self._edit.refuse_key(meeting.key, FormatRefused(reason))
            return
        if now is not None and after is not None and now.id != after.id:
            # Another table: the one that is there goes, and then the key is free for what was there.
            conflicts_before = len(self._edit.conflicts)
            self._restore_key(meeting, None)
            if len(self._edit.conflicts) > conflicts_before:
                return
            meeting = meeting._replace(now=None)
        self._restore_key(meeting, after)

    def _explain_refusal(self, now: AnyContent | None, after: AnyContent | None) -> str | None:
        """Why a table cannot be restored that the lake has come to manage since, or does no more."""
        if now is None or after is None or now.type != after.type:
            return None
        if getattr(now, "location", None) != getattr(after, "location", None):
            return None
        is_managed, was_managed = (
            self._formats.find_managing_format(content) is not None for content in (now, after)
        )
        if is_managed and not was_managed:
            return (
                "was not managed by the lake at that time, but is now; restore it to one of its versions "
                "instead"
            )
        if was_managed and not is_managed:
            return "is no longer managed by the lake; adopt it first, or leave it as it is"
        return None

    def _explain_missing_files(self, managing: Format, meeting: KeySides, missing: str) -> str:
        after = self._decode_content(meeting.wanted)
        state = f"version {self._version}" if self._version is not None else ""
        if after is not None and not state:
            state = managing.describe_state(after)
        state = state or "what it was"
        return f"cannot be restored to {state}: {missing}; restore a newer state, or put the files back"
