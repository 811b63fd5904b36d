"""Rebase: repeating a branch's own commits on a new base."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.kernel.bring import MergeOptions
from penstock.kernel.chain import Chain
from penstock.kernel.references import Move
from penstock.kernel.transplant import TransplantRequest
from penstock.model.commits import CommitMeta
from penstock.model.encoding import ObjectId
from penstock.model.merges import MergedKey
from penstock.model.objects import Landed
from penstock.model.references import Event, Reference

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel


class NotMoved(Exception):
    """A rebase leaves the branch where it is."""

    def __init__(self, reference: Reference) -> None:
        super().__init__(reference.name)
        self.reference = reference


class Rebase:
    """A branch's own commits, repeated on a new base."""

    def __init__(
        self, kernel: Kernel, onto: ObjectId, meta: CommitMeta, options: MergeOptions, key: str
    ) -> None:
        self._kernel, self._onto, self._meta, self._options, self._key = kernel, onto, meta, options, key
        self.base = onto
        self.results: list[MergedKey] = []
        self.commits: list[ObjectId] = []
        self._built: tuple[ObjectId, Chain] | None = None

    def chain(self, reference: Reference) -> Chain:
        """The new chain, its drafts not yet sealed; a dry run keeps the conflicts in ``results``."""
        kernel = self._kernel
        self.base = kernel.history.merge_bases(reference.head, self._onto)[0]
        chain = Chain(kernel.objects, self._onto)
        own = self._own_commits(reference.head)
        if not own:
            return chain
        request = TransplantRequest(
            kernel.history, kernel.formats, own, self._meta, self._key, self._options, has=self._is_in_base
        )
        try:
            drafts = request.apply(chain, reference)
        finally:
            self.results = request.results
        for draft in drafts:
            chain.add(draft)
        return chain

    def is_done(self, reference: Reference) -> bool:
        """Whether the branch stands on the new base already."""
        history = self._kernel.history
        head, onto = history.commit(reference.head), history.commit(self._onto)
        if head.depth < onto.depth:
            return False
        return history.predecessor(reference.head, head.depth - onto.depth) == self._onto

    def _is_in_base(self, commit: ObjectId) -> bool:
        return self._kernel.history.is_ancestor(commit, self._onto)

    def _own_commits(self, head: ObjectId) -> list[ObjectId]:
        """The branch's commits by first parents that the new base does not have, oldest first."""
        own = []
        for one, _ in self._kernel.history.walk(head):
            if self._is_in_base(one):
                break
            own.append(one)
        return own[::-1]

    def build(self, reference: Reference) -> Chain:
        """The new chain, sealed. It is built once for a head, before the branch is locked."""
        if self._built is None or self._built[0] != reference.head:
            chain = self.chain(reference)
            self.commits = [one for one, _ in chain.seal(self._kernel.clock())]
            self._built = reference.head, chain
        return self._built[1]

    def move(self, reference: Reference) -> Move:
        chain = self.build(reference)
        landed: tuple[Landed, ...] = ()
        if self.commits:
            author = self._meta.committer
            landed = (Landed(Event.TRANSPLANT.value, self._key, author, self.commits[-1], len(self.commits)),)
        after = msgspec.structs.replace(reference, head=chain.tip)
        return Move(after, Event.TRANSPLANT, chain.objects.fresh, landed)
