"""What the retained commits of a lake reference of Lance tables: at any branch, tag or transaction.

A table is a tree of versions, and most of it is the same from one commit to the next: every node is read
once, and so is every manifest. Files are known by short hashes of their whole paths, since the manifests of
one table may name files of another, which it was cloned from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from penstock.errors import Damaged, PenstockError
from penstock.formats.lance.branch_chains import WriteTarget, begin_chain
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.manifest_files import ManifestFiles, UnclearManifest, list_spellings
from penstock.formats.lance.manifest_reader import is_manifest_of
from penstock.formats.lance.manifests import Manifest
from penstock.formats.lance.names import MAIN, make_branch_folder
from penstock.formats.lance.protobuf import MalformedMessage
from penstock.formats.lance.relocation import remove_idle_bases
from penstock.formats.lance.state import (
    LanceState,
    LanceTableVersion,
    LanceVersionReader,
    decode_entry,
    decode_state,
    is_managed,
    parse_version_key,
)
from penstock.kernel.kernel import Kernel
from penstock.kernel.lake_state import find_prefix_end
from penstock.kernel.ledger import LEDGER, find_table, read_ledger_entry
from penstock.kernel.objects import read_content
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.retained_history import NeighbourTables, RetainedHistory
from penstock.model.content import AnyContent
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import RESERVED, Key
from penstock.model.objects import EMPTY_ROOT, CommitObject, Leaf, Node, Value
from penstock.model.references import Kind
from penstock.storage.locations import normalise_location
from penstock.storage.name_hashes import hash_name
from penstock.storage.places import Places

BLOCK: Final = 500


def list_tables_at(kernel: Kernel, commit: ObjectId) -> Iterator[tuple[Key, LanceTable]]:
    """The Lance tables of a commit whose versions the lake decides, by the ledger."""
    look = partial(_read_content_at, kernel, commit)
    for stored, _ in kernel.read_state(commit).scan_entries(LEDGER, find_prefix_end(LEDGER)):
        key = find_table(look, UUID(hex=stored.removeprefix(LEDGER).decode()))
        content = None if key is None else _to_lance_table(look(key.encode()))
        if key is not None and content is not None:
            yield key, content


def _read_content_at(kernel: Kernel, commit: ObjectId, stored: bytes) -> AnyContent | None:
    return read_content(kernel.objects, kernel.read_state(commit).get(stored))


class NumberedManifest(NamedTuple):
    """A version of one of Lance's own branches."""

    branch: str
    number: int
    version: LanceTableVersion

    @property
    def id(self) -> tuple[str, ObjectId]:
        return self.branch, self.version.make_id(self.number)

    @property
    def promoted_path(self) -> str:
        """Where its manifest is once everybody may see it."""
        return self.version.promoted_path(self.branch, self.number)


class RetainedTable:
    """A table over all retained commits that have it: its versions, chains and files."""

    def __init__(self, key: Key, location: str) -> None:
        self.key, self.location = key, location
        self.is_registered = False
        self.is_there = False
        """Whether a branch has it now."""
        self.lines: set[str] = {""}
        """Chains that a branch goes on in, or would: the table's own folder is always one."""
        self.numbers: dict[tuple[str, str], set[int]] = {}
        """Of versions, by chain and by Lance's own branch."""
        self.history: dict[tuple[str, str], dict[int, LanceTableVersion]] = {}
        """The versions that kept commits are at, by the same."""
        self.heads: dict[tuple[str, str], dict[int, LanceTableVersion]] = {}
        """What commits need of them that a branch, a tag or a transaction of the lake is at now."""
        self.problem: str = ""
        """Why it cannot be said what is named, if so."""
        self.waiting: dict[tuple[str, ObjectId], NumberedManifest] = {}
        """Versions whose manifests have not been read."""
        self.read: set[tuple[str, ObjectId]] = set()
        self.newest: set[tuple[str, ObjectId]] = set()
        """Versions that branches of the lake are at: these have to be there."""
        self.first = 0
        """The version with which its history begins, if it was erased."""
        self.bases: set[str] = set()
        """Places outside of its own folder at which its versions have files."""
        self.gone: set[tuple[str, ObjectId]] = set()
        """Versions that nobody can read any more, because somebody else has removed their manifests."""

    def note_version(self, numbered_manifest: NumberedManifest) -> None:
        """Learn of a version."""
        self.numbers.setdefault((numbered_manifest.version.chain, numbered_manifest.branch), set()).add(
            numbered_manifest.number
        )
        self.waiting[numbered_manifest.id] = numbered_manifest

    def has_chain_folder(self, folder: str) -> bool:
        """Whether the folder of a chain, or of one of Lance's own branches in one, is one of versions."""
        return folder in self.lines or any(folder == make_branch_folder(*number) for number in self.numbers)

    def list_version_numbers(self, branch: str, chain: str | None = None) -> set[int]:
        """The versions of one of Lance's own branches, in one chain or in all of them."""
        number_sets = (
            ones for (where, name), ones in self.numbers.items() if name == branch and chain in (None, where)
        )
        return set().union(*number_sets)

    def is_copy(self, chain: str, branch: str, number: int) -> bool:
        """Whether a line has a version of another chain, from before the line's own ones, to begin with."""
        own = self.list_version_numbers(branch, chain)
        is_before = not own or number < min(own)
        return chain in self.lines and is_before and number in self.list_version_numbers(branch)


class RetainedTables:
    """Looks at all kept commits; a second look costs what was committed in between."""

    def __init__(self, kernel: Kernel, places: Places, progress: Progress = show_no_progress) -> None:
        self._kernel, self._places, self._progress = kernel, places, progress
        self._history = RetainedHistory(kernel, self._tables_changed_by, progress)
        self.neighbours = NeighbourTables(LanceTable)
        self._nodes: set[tuple[str, int, ObjectId]] = set()
        self._branches: set[tuple[bytes, ObjectId]] = set()
        self._heads: dict[ObjectId, list[tuple[str, list[NumberedManifest]]]] = {}
        """Of commits that references are at: the versions of each table there, by its location."""
        self._names: set[bytes] = set()
        self._named_in: dict[str, set[bytes]] = {}
        """The same by the folder of the chain whose manifests name it."""
        self._manifests = ManifestFiles()
        self.tables: dict[str, RetainedTable] = {}
        """By location."""
        self.bases: set[str] = set()
        """Further folders in which manifests name files, as of tables that they were cloned from."""

    def read_new_commits(self) -> None:
        """Take in what kept commits have. ``Damaged`` if some of it cannot be read."""
        for key, content in self._history.list_unseen():
            self._add_table(key, content)
        self._look_at_branches()
        self._look_at_heads()
        for table in self.tables.values():
            self._read_waiting(table)

    def is_file_named(self, path: str) -> bool:
        """Whether a file is named."""
        return any(hash_name(spelling) in self._names for spelling in list_spellings(path))

    def find_unclear(self, location: str) -> Iterator[RetainedTable]:
        """Tables of which it cannot be read whether they have files in the folder of another one.

        Only those that were registered may, or that are known to have files in other folders.
        """
        for table in self.tables.values():
            if table.problem and table.location != location and (table.is_registered or table.bases):
                yield table

    def check_shared(self, location: str) -> None:
        """``Damaged`` if it cannot be read which files of a folder other tables have."""
        if next(self.find_unclear(location), None) is not None:
            raise Damaged(
                f"another Lance table, which may share files with the one at {location}, cannot be read; a "
                "sweep of all tables says which one, and why"
            )

    def is_or_was_on_branch(self, table: UUID) -> bool:
        """Whether a branch has a table, or had it before it was dropped there."""
        heads = {reference.head for reference in self._kernel.references.list_all_references(Kind.BRANCH)} - {
            NO_COMMIT
        }
        return any(
            read_ledger_entry(partial(_read_content_at, self._kernel, head), table) is not None
            for head in heads
        )

    def name_files(self, paths: Iterable[str]) -> None:
        """Count files as named."""
        self._names.update(map(hash_name, paths))

    def take_manifest(self, table: RetainedTable, folder: str, data: bytes) -> None:
        """Count as named what a manifest names that lies in a chain's folder. ``UnclearManifest`` if it
        cannot."""
        try:
            manifest = Manifest.decode(data, self._places.moved)
        except MalformedMessage as problem:
            raise UnclearManifest(f"cannot be read: {problem}") from None
        where = f"{table.location}/{folder}".rstrip("/")
        outside = {base.path for base in manifest.bases if not _is_inside(base.path, table.location)}
        if outside:
            table.bases |= outside & {base.path for base in remove_idle_bases(manifest, "").bases}
        named = {hash_name(file) for file in self._manifests.list_new_files(manifest, where)}
        self._names |= named
        self.bases.update(normalise_location(base.path) for base in manifest.bases)
        self._named_in.setdefault(where, set()).update(named)

    def files_of_other_chains(self, where: str, data: Sequence[bytes]) -> list[frozenset[bytes]]:
        """What each of some manifests in the chain at a folder names that a kept manifest of another chain
        names too, by hashes. ``UnclearManifest`` if that cannot be said."""
        others = set[bytes]().union(*(names for folder, names in self._named_in.items() if folder != where))
        try:
            named = [
                [*ManifestFiles().list_new_files(Manifest.decode(data, self._places.moved), where)]
                for data in data
            ]
        except MalformedMessage as problem:
            raise UnclearManifest(f"cannot be read: {problem}") from None
        return [frozenset(map(hash_name, files)) & others for files in named]

    # -- what commits tell ---------------------------------------------------------------------------------

    def _tables_changed_by(
        self, data: ObjectId, commit: CommitObject, is_first: bool
    ) -> Iterator[tuple[Key, LanceTable]]:
        if is_first:
            values: Iterator[tuple[bytes, Value | None]] = self._kernel.read_state(data).scan_entries()
        else:
            values = (
                (stored, now) for stored, _, now in self._kernel.iterate_differences(commit.parent, data)
            )
        for stored, value in values:
            content = read_content(self._kernel.objects, value)
            self.neighbours.note_content(stored, content)
            own = None if stored.startswith(RESERVED) else _to_lance_table(content)
            retained = None if own is None else self._history.drop_erased(own)
            if retained is not None:
                yield Key.decode(stored), retained

    def _add_table(self, key: Key, content: LanceTable) -> RetainedTable:
        location = normalise_location(content.location)
        table = self.tables.get(location)
        if table is None:
            table = self.tables[location] = RetainedTable(key, location)
        state = decode_state(content)
        table.is_registered |= state.is_registered
        table.first = max(table.first, state.first)
        table.lines.add(state.chain)
        recent = (NumberedManifest(entry.branch, entry.number, entry.version) for entry in state.recent)
        for numbered_manifest in (*self._read_new_tree_nodes(location, state), *recent):
            if numbered_manifest.branch != MAIN or numbered_manifest.number >= state.first:
                table.note_version(numbered_manifest)
        for numbered_manifest in _find_newest_versions(LanceVersionReader(self._kernel.objects, state)):
            _add_version(table.history, numbered_manifest)
        return table

    def _read_new_tree_nodes(self, location: str, state: LanceState) -> Iterator[NumberedManifest]:
        """The versions in those nodes of a table's tree that were not read before, for a state with the same
        beginning."""
        seen_nodes: set[ObjectId] = {EMPTY_ROOT}
        waiting, first = [state.root], state.first
        while waiting:
            block = {
                data for data in waiting[-BLOCK:] if (location, first, data) not in self._nodes
            } - seen_nodes
            del waiting[-BLOCK:]
            for data, node in self._kernel.objects.get_many(block).items():
                if isinstance(node, Leaf):
                    for key, value in zip(node.keys, node.values, strict=True):
                        named, entry = parse_version_key(key), decode_entry(value)
                        if named is not None and isinstance(entry, LanceTableVersion):
                            yield NumberedManifest(*named, entry)
                elif isinstance(node, Node):
                    waiting += node.children
                else:
                    raise Damaged(f"object {data.hex()} is not a node of a tree", objects=[data.hex()])
            seen_nodes |= block
        self._nodes.update((location, first, data) for data in seen_nodes)

    def _look_at_branches(self) -> None:
        """Where branches are now, and the lines that they begin when somebody writes there next: one may be
        there already."""
        for branch in self._kernel.references.list_all_references(Kind.BRANCH):
            if branch.head == NO_COMMIT or (branch.incarnation, branch.head) in self._branches:
                continue
            for key, content in list_tables_at(self._kernel, branch.head):
                if (retained := self._history.drop_erased(content)) is None:
                    continue
                versions = LanceVersionReader(self._kernel.objects, decode_state(retained))
                table = self._add_table(key, retained)
                table.is_there = True
                table.lines.add(begin_chain(WriteTarget(branch.incarnation), content, versions).folder)
                if (newest := versions.find_newest()) is not None:
                    table.newest.add(NumberedManifest(MAIN, *newest).id)
            self._branches.add((branch.incarnation, branch.head))

    def _look_at_heads(self) -> None:
        """Which versions branches, tags and transactions are at now."""
        kinds = (Kind.BRANCH, Kind.TAG, Kind.TRANSACTION)
        commits = {
            reference.head
            for kind in kinds
            for reference in self._kernel.references.list_all_references(kind)
        } - {NO_COMMIT}
        self._heads = {
            commit: self._heads.get(commit) or [*self._list_versions_at(commit)] for commit in commits
        }
        for table in self.tables.values():
            table.heads = {}
        for location, versions in (each for head in self._heads.values() for each in head):
            if (known_table := self.tables.get(location)) is not None:
                for version in versions:
                    _add_version(known_table.heads, version)

    def _list_versions_at(self, commit: ObjectId) -> Iterator[tuple[str, list[NumberedManifest]]]:
        """What a commit needs of each table: its newest version, and what Lance's own branches and tags lead
        to."""
        for _, content in list_tables_at(self._kernel, commit):
            if (retained := self._history.drop_erased(content)) is None:
                continue
            versions = LanceVersionReader(self._kernel.objects, decode_state(retained))
            named = [(branch.parent, branch.version) for branch in versions.list_branches().values()]
            named += [(tag.branch, tag.version) for tag in versions.list_tags().values()]
            numbered_manifests = [
                NumberedManifest(*version_at, version)
                for version_at in named
                if (version := versions.get_version(*version_at)) is not None
            ]
            yield (
                normalise_location(content.location),
                [*_find_newest_versions(versions), *numbered_manifests],
            )

    # -- what manifests tell -------------------------------------------------------------------------------

    def _read_waiting(self, table: RetainedTable) -> None:
        """Read the manifests of versions that are new. What stands against it is noted with the table."""
        waiting = {
            name: numbered_manifest
            for name, numbered_manifest in table.waiting.items()
            if name not in table.read
        }
        table.waiting = {}
        try:
            self._read_manifests(table, [*waiting.values()])
            table.read.update(waiting)
        except PenstockError as problem:
            table.problem = table.problem or problem.message
        if table.newest & table.gone:
            table.problem = f"the manifest of the newest version of the Lance table '{table.key}' is gone"

    def _read_manifests(self, table: RetainedTable, versions: list[NumberedManifest]) -> None:
        """A version whose manifest is nowhere names nothing: Lance's own clean-up has removed it."""
        place, apart = self._places.open_place(table.location), list[NumberedManifest]()
        for numbered_manifest, data in zip(
            versions,
            place.read([numbered_manifest.promoted_path for numbered_manifest in versions]),
            strict=True,
        ):
            self.name_files([f"{table.location}/{numbered_manifest.promoted_path}"])
            if data is not None and is_manifest_of(numbered_manifest.version, data):
                self._take_version(table, numbered_manifest, data)
            else:
                apart.append(numbered_manifest)
        for numbered_manifest, data in zip(
            apart,
            place.read(
                [
                    numbered_manifest.version.staged or numbered_manifest.promoted_path
                    for numbered_manifest in apart
                ]
            ),
            strict=True,
        ):
            if numbered_manifest.version.staged:
                self.name_files([f"{table.location}/{numbered_manifest.version.staged}"])
            if data is None:  # it may have been put where everybody looks in between
                (data,) = place.read([numbered_manifest.promoted_path])
            if data is None:
                table.gone.add(numbered_manifest.id)
            elif is_manifest_of(numbered_manifest.version, data):
                self._take_version(table, numbered_manifest, data)
            else:
                table.problem = _different_manifest_message(table, numbered_manifest)

    def _take_version(self, table: RetainedTable, numbered_manifest: NumberedManifest, data: bytes) -> None:
        try:
            self.take_manifest(
                table, make_branch_folder(numbered_manifest.version.chain, numbered_manifest.branch), data
            )
        except UnclearManifest as problem:
            table.problem = f"version {numbered_manifest.number} of the Lance table '{table.key}' {problem}"
        self._progress("manifests", len(table.read))


def _is_inside(path: str, location: str) -> bool:
    return path.rstrip("/") == location or path.startswith(f"{location}/")


def _find_newest_versions(versions: LanceVersionReader) -> Iterator[NumberedManifest]:
    """The newest version of each of Lance's own branches."""
    for branch in (MAIN, *versions.list_branches()):
        if (newest := versions.find_newest(branch)) is not None:
            yield NumberedManifest(branch, *newest)


def _add_version(
    versions_by_branch: dict[tuple[str, str], dict[int, LanceTableVersion]],
    numbered_manifest: NumberedManifest,
) -> None:
    versions_by_branch.setdefault((numbered_manifest.version.chain, numbered_manifest.branch), {})[
        numbered_manifest.number
    ] = numbered_manifest.version


def _to_lance_table(content: AnyContent | None) -> LanceTable | None:
    return content if isinstance(content, LanceTable) and is_managed(content) else None


def _different_manifest_message(table: RetainedTable, numbered_manifest: NumberedManifest) -> str:
    return (
        f"the manifest of version {numbered_manifest.number} of the Lance table '{table.key}' differs from "
        f"the committed one: {numbered_manifest.promoted_path}"
    )
