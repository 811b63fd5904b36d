"""Revert: undoing what one commit did, where others may have come after it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from penstock.errors import InvalidRequest
from penstock.kernel.chain import CommitChain, CommitDraft
from penstock.kernel.edit import Edit, describe_difference
from penstock.kernel.format import Format, FormatRefused, Formats, PrepareAgain
from penstock.kernel.history import History
from penstock.kernel.lake_state import Difference, open_state
from penstock.kernel.later_commits import LaterCommits
from penstock.kernel.three_way import KeySides, MergeOptions, ThreeWayApply, ThreeWayRequest, ThreeWayTerms
from penstock.model.commits import CommitMeta
from penstock.model.encoding import ObjectId, encode, hash_object
from penstock.model.keys import Key
from penstock.model.merges import MergedKey
from penstock.model.references import Event, Reference


class RevertRequest(ThreeWayRequest):
    """Undo what one commit did, by a new commit."""

    event = Event.COMMIT
    needs_preparation = True

    def __init__(
        self,
        history: History,
        formats: Formats,
        commit: ObjectId,
        meta: CommitMeta,
        options: MergeOptions,
        terms: ThreeWayTerms,
    ) -> None:
        super().__init__(history, formats, meta, options, terms)
        self._commit = commit
        self._later = LaterCommits(history, formats, commit)

    @property
    def fingerprint(self) -> bytes:
        return hash_object(
            encode(("revert", self._commit, self.if_head, self._meta.message, self._options.fingerprint()))
        )

    def prepare(self, reference: Reference) -> None:
        self._require_in(reference, reference.head)
        managed = self._select_managed_changes(self._later.undo)
        if managed and not self.may_read:
            view = open_state(self._history.objects, self._history.read_commit(reference.head))
            edit = self._begin_edit(self._history.objects, view, reference, may_read=True)
            with suppress(PrepareAgain):
                self._make_apply(edit, reference.head).apply_difference(managed, {})

    def draft_commits(self, chain: CommitChain, reference: Reference) -> list[CommitDraft]:
        self._require_in(reference, chain.tip)
        edit = self._begin_edit(chain.objects, chain.view, reference, self.may_read)
        reverting = self._make_apply(edit, None if chain.has_drafts else chain.tip)
        reverting.apply_difference(self._later.undo, {})
        return self._make_commit_drafts(edit, reverting, reference, "cannot revert")

    def _require_in(self, reference: Reference, head: ObjectId) -> None:
        if not self._history.is_ancestor(self._commit, head):
            raise InvalidRequest(
                f"commit {self._commit.hex()[:8]} is not in the history of '{reference.name}'"
            )

    def _make_apply(self, edit: Edit, head: ObjectId | None) -> _RevertApply:
        return _RevertApply(
            edit, self._formats, self._options, lambda key: self._later.look_up_commits(head, key)
        )


class _RevertApply(ThreeWayApply):
    """A managed table is not replayed but restored, if nothing came after or its format knows how."""

    def apply_difference(self, changes: Difference, *args: Any, **kwargs: Any) -> None:
        """A table that the commit renamed gets its old name back as it is now, with all that came since."""
        for new, old in self._find_renamed(changes).items():
            now = self._edit.view.get(new)
            content = self._decode_content(now)
            self._edit.put_value(new, None)
            self._edit.put_value(old, now)
            for stored, before, after in ((new, content, None), (old, None, content)):
                key = Key.decode(stored)
                self.results[key] = MergedKey(key=key, before=before, after=after)
            changes = {key: values for key, values in changes.items() if key not in (new, old)}
        super().apply_difference(changes, *args, **kwargs)

    def _find_renamed(self, changes: Difference) -> dict[bytes, bytes]:
        """The new keys of tables that the commit only renamed and that are still there, with the old ones."""
        removed = {
            value: key for key, (before, value) in changes.items() if before is None and value is not None
        }
        renamed: dict[bytes, bytes] = {}
        for key, (before, after) in changes.items():
            if before is None or after is not None or before not in removed:
                continue
            names = key, removed[before]
            is_managed = self._formats.find_managing_format(self._decode_content(before)) is not None
            is_normal = not any(Key.decode(name) in self._options.keys for name in names)
            is_free = self._edit.view.get(removed[before]) is None
            if is_managed and is_normal and is_free and self._is_one_table(before, self._edit.view.get(key)):
                renamed[key] = removed[before]
        return renamed

    def finish_keys(self) -> None:
        """A namespace that the commit made stays if others have put something there since."""
        for key in self._edit.keep_filled_namespaces():
            if (result := self.results.get(key)) is not None:
                self.results[key] = msgspec.structs.replace(result, after=result.before)
        super().finish_keys()

    def _merge_key(self, meeting: KeySides) -> None:
        if not self._is_gone(meeting):
            super()._merge_key(meeting)

    def _is_gone(self, meeting: KeySides) -> bool:
        """Whether the commit created a table that is not there any more, but something else: nothing is left
        to undo, and what came to the key since is not a part of it."""
        before, now = self._decode_content(meeting.was), self._decode_content(meeting.now)
        if meeting.wanted is not None or before is None or now is None:
            return False
        return self._formats.find_managing_format(before) is not None and now.id != before.id

    def _merge_managed(self, managing: Format, meeting: KeySides) -> None:
        paths = self._options.get_key_merge(meeting.key).paths
        is_as_it_was = meeting.was == meeting.now and not paths
        if is_as_it_was and not managing.repeats_states:
            self._put_back(meeting)
            return
        before, after, now = map(self._decode_content, (meeting.was, meeting.wanted, meeting.now))
        table = msgspec.structs.replace(self._edit.open_table(meeting.key, now, after), paths=paths)
        assert self._since is not None, "or it is no revert"
        try:
            self._refuse_erased(before, after)
            states = self._drop_erased(before), self._drop_erased(after)
            applied = managing.revert(table, *states, self._since(meeting.stored))
        except FormatRefused as refused:
            self._edit.refuse_key(meeting.key, refused)
            return
        if applied is None and is_as_it_was:
            self._put_back(meeting)
            return
        if applied is None:
            self._edit.conflicts.append(describe_difference(meeting.key, before, now))
            return
        self._edit.put_applied(meeting.stored, applied)
        self._edit.add_opaque(meeting.stored, managing)
        self._check_returning(meeting)

    def _put_back(self, meeting: KeySides) -> None:
        """The table as it was before the commit, after which nothing came."""
        conflicts_before = len(self._edit.conflicts)
        self._restore_key(meeting, self._decode_content(meeting.wanted))
        if len(self._edit.conflicts) == conflicts_before:
            self._check_returning(meeting)
