"""Revert: undoing what one commit did, where others may have come after it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from penstock.errors import InvalidRequest, MergeConflict
from penstock.kernel.bring import Bringing, BringRequest, BringTerms, Meeting, MergeOptions
from penstock.kernel.chain import Chain, Draft
from penstock.kernel.conflict import compare
from penstock.kernel.edit import Edit
from penstock.kernel.format import Format, Formats, PrepareAgain, Refused
from penstock.kernel.history import History
from penstock.kernel.landing import LandingNotice
from penstock.kernel.later_commits import LaterCommits
from penstock.kernel.state import Difference, state_of
from penstock.model.commits import CommitMeta
from penstock.model.encoding import ObjectId, encode, object_id
from penstock.model.keys import Key
from penstock.model.merges import MergedKey
from penstock.model.references import Event, Reference


class RevertRequest(BringRequest):
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
        terms: BringTerms,
    ) -> None:
        super().__init__(history, formats, meta, options, terms)
        self._commit = commit
        self._later = LaterCommits(history, formats, commit)

    @property
    def wish(self) -> bytes:
        return object_id(
            encode(("revert", self._commit, self.if_head, self._meta.message, self._options.wish()))
        )

    def prepare(self, reference: Reference) -> None:
        self._require_in(reference, reference.head)
        managed = self._managed(self._later.undo)
        if managed and not self.may_read:
            view = state_of(self._history.objects, self._history.commit(reference.head))
            edit = self._edit(self._history.objects, view, reference, may_read=True)
            with suppress(PrepareAgain):
                self._reverting(edit, reference.head).bring(managed, {})

    def apply(self, chain: Chain, reference: Reference) -> list[Draft]:
        self._require_in(reference, chain.tip)
        edit = self._edit(chain.objects, chain.view, reference, self.may_read)
        reverting = self._reverting(edit, None if chain.has_drafts else chain.tip)
        reverting.bring(self._later.undo, {})
        reverting.finish()
        self.results = list(reverting.results.values())
        if edit.conflicts:
            raise MergeConflict(edit.conflicts, what="cannot revert")
        if not edit.changed:
            return []
        self._landing = LandingNotice(self._formats, reference.name)
        self._landing.add(edit.tables)
        return [edit.draft(self._meta, self.key)]

    def _require_in(self, reference: Reference, head: ObjectId) -> None:
        if not self._history.is_ancestor(self._commit, head):
            raise InvalidRequest(
                f"commit {self._commit.hex()[:8]} is not in the history of '{reference.name}'"
            )

    def _reverting(self, edit: Edit, head: ObjectId | None) -> _Reverting:
        return _Reverting(edit, self._formats, self._options, lambda key: self._later.since(head, key))


class _Reverting(Bringing):
    """A managed table is not replayed but restored, if nothing came after or its format knows how."""

    def bring(self, changes: Difference, *args: Any, **kwargs: Any) -> None:
        """A table that the commit renamed gets its old name back as it is now, with all that came since."""
        for new, old in self._renamed(changes).items():
            now = self._edit.view.get(new)
            content = self._content(now)
            self._edit.put_value(new, None)
            self._edit.put_value(old, now)
            for stored, before, after in ((new, content, None), (old, None, content)):
                key = Key.decode(stored)
                self.results[key] = MergedKey(key=key, before=before, after=after)
            changes = {key: one for key, one in changes.items() if key not in (new, old)}
        super().bring(changes, *args, **kwargs)

    def _renamed(self, changes: Difference) -> dict[bytes, bytes]:
        """The new keys of tables that the commit only renamed and that are still there, with the old ones."""
        gone = {value: key for key, (was, value) in changes.items() if was is None and value is not None}
        found: dict[bytes, bytes] = {}
        for key, (was, wanted) in changes.items():
            if was is None or wanted is not None or was not in gone:
                continue
            names = key, gone[was]
            is_managed = self._formats.managing(self._content(was)) is not None
            is_normal = not any(Key.decode(one) in self._options.keys for one in names)
            is_free = self._edit.view.get(gone[was]) is None
            if is_managed and is_normal and is_free and self._is_one_table(was, self._edit.view.get(key)):
                found[key] = gone[was]
        return found

    def finish(self) -> None:
        """A namespace that the commit made stays if others have put something there since."""
        for key in self._edit.keep_filled_namespaces():
            if (known := self.results.get(key)) is not None:
                self.results[key] = msgspec.structs.replace(known, after=known.before)
        super().finish()

    def _merge(self, meeting: Meeting) -> None:
        if not self._is_gone(meeting):
            super()._merge(meeting)

    def _is_gone(self, meeting: Meeting) -> bool:
        """Whether the commit created a table that is not there any more, but something else: nothing is left
        to undo, and what came to the key since is no part of it."""
        was, now = self._content(meeting.was), self._content(meeting.now)
        if meeting.wanted is not None or was is None or now is None:
            return False
        return self._formats.managing(was) is not None and now.id != was.id

    def _merge_managed(self, managing: Format, meeting: Meeting) -> None:
        paths = self._options.of(meeting.key).paths
        is_as_it_was = meeting.was == meeting.now and not paths
        if is_as_it_was and not managing.repeats_states:
            self._put_back(meeting)
            return
        was, wanted, now = map(self._content, (meeting.was, meeting.wanted, meeting.now))
        table = self._edit.table(meeting.key, now, wanted)._replace(paths=paths)
        assert self._since is not None, "or it is no revert"
        try:
            self._refuse_erased(was, wanted)
            states = self._retained(was), self._retained(wanted)
            applied = managing.revert(table, *states, self._since(meeting.stored))
        except Refused as refused:
            self._edit.refuse(meeting.key, refused)
            return
        if applied is None and is_as_it_was:
            self._put_back(meeting)
            return
        if applied is None:
            self._edit.conflicts.append(compare(meeting.key, was, now))
            return
        self._edit.put_applied(meeting.stored, applied)
        self._edit.add_opaque(meeting.stored, managing)
        self._check_returning(meeting)

    def _put_back(self, meeting: Meeting) -> None:
        """The table as it was before the commit, after which nothing came."""
        met = len(self._edit.conflicts)
        self._restore(meeting, self._content(meeting.wanted))
        if len(self._edit.conflicts) == met:
            self._check_returning(meeting)
