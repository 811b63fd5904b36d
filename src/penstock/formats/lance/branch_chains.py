"""Which chain of versions a Lance table continues in when it is written to on a branch.

Lance's writers look into a folder to see what others did. So every branch must have a folder of its own, or
one would take another's versions for what came before its own. The default branch has the table's folder,
and whatever else writes to a table begins a line (``names.make_chain_folder``). A transaction goes on in the
chain of the branch that it lands on: it has names of its own there, which nobody else looks at.

A branch can be moved back, and its folder cannot: that has newer versions then, which are nobody's any more.
So it begins another line, the first in which nothing comes after the versions that it goes on from, also on
Lance's own branches. A transaction whose target has moved on finds the same: what comes after its versions is
the target's, and it begins a line too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.names import MAIN, STAGING, make_chain_folder, make_manifest_path
from penstock.formats.lance.state import LanceState, LanceTableVersion, LanceVersionReader
from penstock.kernel.format import Table
from penstock.model.encoding import hash_parts
from penstock.storage.places import Place

LINES_MAX: Final = 64
"""How many lines a branch may begin from one version, each after the one before was given up."""


class WriteTarget(NamedTuple):
    """For which branch or transaction a table is written."""

    owner: bytes
    """The incarnation of the branch that the versions are for; nothing for the default branch."""
    transaction: str | None = None
    """The id of the transaction in which they are kept until it lands."""

    @staticmethod
    def from_table(table: Table) -> WriteTarget:
        if (open_one := table.transaction) is not None:
            return WriteTarget(b"" if open_one.is_default else open_one.incarnation, open_one.id)
        return WriteTarget(b"" if table.is_default else table.incarnation)

    @property
    def line_owner(self) -> bytes:
        """The owner of the lines that this target starts; empty if it starts none.

        A transaction of the default branch has lines of its own: what is in them is not in the table's folder
        when it lands, and must not be taken for it.
        """
        if self.owner or self.transaction is None:
            return self.owner
        return hash_parts("lance transaction", self.transaction.encode())


class OwnedChain(NamedTuple):
    """A chain, and the branch that it belongs to."""

    folder: str
    owner: bytes


def find_chain(
    target: WriteTarget, content: LanceTable, state: LanceState, versions: LanceVersionReader
) -> OwnedChain:
    """The chain in which the table continues, from its state alone."""
    if state.owner in (target.owner, target.line_owner):
        return OwnedChain(state.chain, state.owner)
    return begin_chain(target, content, versions)


def begin_chain(target: WriteTarget, content: LanceTable, versions: LanceVersionReader) -> OwnedChain:
    """The chain that begins with the table as it is. The default branch has the table's own folder, and so
    has a transaction of it."""
    return next(_list_owned_chains(target, content, versions)) if target.owner else OwnedChain("", b"")


def list_possible_chains(
    target: WriteTarget, content: LanceTable, state: LanceState, versions: LanceVersionReader
) -> Iterator[OwnedChain]:
    """The chains in which a table may go on, those that are to be tried first first."""
    first = find_chain(target, content, state, versions)
    yield first
    if target.line_owner:
        yield from (line for line in _list_owned_chains(target, content, versions) if line != first)


def find_free_chain(
    place: Place, target: WriteTarget, content: LanceTable, state: LanceState, versions: LanceVersionReader
) -> OwnedChain:
    """The chain in which a table goes on: of those that it may the first one where nothing comes after it.

    It looks into table storage. What is found is the same for everybody until somebody has gone on there.
    """
    chain = find_chain(target, content, state, versions)
    if not target.line_owner:
        return chain
    newest = {branch: versions.find_newest(branch) for branch in (MAIN, *versions.list_branches())}
    for chain in list_possible_chains(target, content, state, versions):
        names = [
            name
            for branch, newest_version in newest.items()
            for name in _paths_that_must_be_free(target, chain, branch, newest_version)
        ]
        if all(place.size(name) is None for name in names):
            break
    return chain


def _paths_that_must_be_free(
    target: WriteTarget, chain: OwnedChain, branch: str, newest: tuple[int, LanceTableVersion] | None
) -> Iterator[str]:
    """Where nothing may be in a chain, so that Lance goes on there from the newest version of a branch.

    That is where the next one belongs, and where a version belongs that a transaction keeps apart: what is
    there is its target's, and the target's next one will be there soon.
    """
    if newest is None:
        yield make_manifest_path(chain.folder, branch, 1)
        return
    number, version = newest
    is_here = version.chain == chain.folder
    yield make_manifest_path(chain.folder, branch, number + 1, is_v1=version.is_v1 and is_here)
    if is_here and target.transaction and f"{STAGING}{target.transaction}-" in version.staged:
        yield version.promoted_path(branch, number)


def _list_owned_chains(
    target: WriteTarget, content: LanceTable, versions: LanceVersionReader
) -> Iterator[OwnedChain]:
    """The lines that begin with the table as it is: with its versions, and those of Lance's own branches."""
    assert content.id is not None
    owner, head = target.line_owner, b""
    for branch in (MAIN, *versions.list_branches()):
        newest = versions.find_newest(branch)
        head += branch.encode() + (b"" if newest is None else newest[1].make_id(newest[0]))
    for turn in range(LINES_MAX):
        yield OwnedChain(make_chain_folder(owner, content.id.bytes, head, turn), owner)
