"""Tables of files as plain dictionaries: what the real ones are held against, and slow ways to ask them.

Nothing here shares code with the format but its values. A merge looks at every path there is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import NamedTuple
from uuid import UUID

from hypothesis import strategies as st

from penstock.formats.files import trees
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import File, FilesState, decode_state, encode_state_into_table
from penstock.formats.files.intents import WriteCondition, WriteIntent, encode_write, select_part_for_merges
from penstock.formats.files.table_changes import apply_write
from penstock.kernel.format import AppliedChange, CrissCrossHistory, FormatRefused, Table
from penstock.kernel.objects import Objects
from penstock.model.keys import Key
from penstock.model.merges import MergeMode
from penstock.stores.memory import MemoryStore

Files = dict[str, File]
ID = UUID(int=7)
SLICE = "20261115-0123456789ab/"


class Clash(Exception):
    """It cannot be, because of these paths; of none in particular if there are none."""

    def __init__(self, paths: Collection[str] = ()) -> None:
        super().__init__(sorted(paths))
        self.paths = sorted(paths)


def file(content: int, attempt: int = 0) -> File:
    """A file with one of a few contents, written by one of a few attempts."""
    return File(f"{SLICE}{attempt:032x}/", content, 0, f"sha256:{content}" if content % 3 else "")


def carried_out(files: Files, write: WriteIntent) -> Files | None:
    """A table after a write, ``None`` if nothing is to happen."""
    if write.when is not WriteCondition.ALWAYS and files:
        if write.when is WriteCondition.IGNORE:
            return None
        raise Clash
    strange = [path for path, address in write.expected if _address(files, path) != address]
    if strange:
        raise Clash(strange)
    left = {path: one for path, one in files.items() if not path.startswith(tuple(write.replaced))}
    if missing := [path for path in write.removed if path not in left]:
        raise Clash(missing)
    if there := [path for path, _ in write.added if path in left]:
        raise Clash(there)
    left = {path: one for path, one in left.items() if path not in write.removed}
    return left | dict(write.added) | dict(write.put)


def _address(files: Files, path: str) -> str | None:
    return files[path].address_at(path) if path in files else None


def merged(
    origin: Files,
    theirs: Files,
    ours: Files,
    replaced: Collection[str] = (),
    paths: Mapping[str, MergeMode] | None = None,
) -> Files:
    """What a merge makes of ours, asked path by path."""
    result: Files = {}
    clashes = []
    for path in sorted({*origin, *theirs, *ours}):
        was, wanted, now = origin.get(path), theirs.get(path), ours.get(path)
        mode = mode_of(paths or {}, path)
        if mode is MergeMode.FORCE or (mode is MergeMode.NORMAL and path.startswith(tuple(replaced))):
            taken = wanted
        elif mode is MergeMode.DROP or was == wanted or same(now, wanted):
            taken = now
        elif same(was, now) or path.split("/")[-1] == "_SUCCESS":
            taken = wanted
        else:
            clashes.append(path)
            continue
        if taken is not None:
            result[path] = taken
    if clashes:
        raise Clash(clashes)
    return result


def mode_of(paths: Mapping[str, MergeMode], path: str) -> MergeMode:
    parts = path.split("/")
    for count in range(len(parts) - 1, -1, -1):
        folder = "".join(f"{part}/" for part in parts[:count])
        if folder in paths:
            return paths[folder]
    return MergeMode.NORMAL


def same(one: File | None, other: File | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or bool(one.checksum and one.checksum == other.checksum and one.size == other.size)


class Shelf:
    """Real tables in a store of their own."""

    def __init__(self) -> None:
        self.objects = Objects(MemoryStore())

    def state(self, files: Files) -> FilesState:
        """A table with these files, which is written at once."""
        return self.write(FilesState(), WriteIntent(put=tuple(files.items())))[0]

    def write(self, state: FilesState, write: WriteIntent) -> tuple[FilesState, bool]:
        """A table after a write, and whether anything happened."""
        done = apply_write(self.objects, state, write)
        if done is None:
            return state, False
        self.objects.store.store(done[1])
        return done[0], True

    def content(self, state: FilesState, identity: UUID = ID) -> FilesTable:
        return encode_state_into_table(FilesTable(id=identity), state)

    def asked(self, change: Callable[[], AppliedChange]) -> Files | Clashed:
        """What a change makes of a table, or that it is refused."""
        try:
            applied = change()
        except FormatRefused as refused:
            return Clashed(sorted(one.path for one in refused.clashes))
        self.objects.store.store(applied.blobs)
        assert isinstance(applied.content, FilesTable)
        state = decode_state(applied.content)
        files = self.files(state)
        assert applied.content.held == ((state.root,) if files else ())
        assert state.root == self.state(files).root, "the root follows from the files, whatever the history"
        return files

    def files(self, state: FilesState) -> Files:
        """What a table has, read from its tree; what it says of itself must be so."""
        found = dict(trees.list_below(Objects(self.objects.store), state.root))
        assert (state.files, state.size) == (len(found), sum(one.size for one in found.values()))
        return found

    def table(
        self,
        content: FilesTable | None,
        paths: Mapping[str, MergeMode] | None = None,
        criss_cross: CrissCrossHistory | None = None,
        is_strange: bool = False,
    ) -> Table:
        return Table(
            Key.parse("raw.events"),
            content,
            lambda _: b"",
            objects=self.objects,
            paths=paths or {},
            criss_cross=criss_cross,
            is_strange=is_strange,
        )


def intents(writes: Sequence[WriteIntent]) -> list[bytes]:
    """What commits keep of some writes."""
    return [encode_write(select_part_for_merges(write)) for write in writes]


class Clashed(NamedTuple):
    """It cannot be: the paths that a refusal names."""

    paths: list[str]


def asked(model: Callable[[], Files | None]) -> Files | Clashed | None:
    """What a model says, or that it cannot be."""
    try:
        return model()
    except Clash as clash:
        return Clashed(clash.paths)


# -- random ones -------------------------------------------------------------------------------------------
#
# Folders are each other's neighbours, parents and beginnings; contents repeat under different paths.

FOLDERS = ("", "a/", "a/b/", "a/c/", "ab/", "b/")
paths = st.builds(
    lambda folder, number: f"{folder}{number:02}" if number < 12 else f"{folder}_SUCCESS",
    st.sampled_from(FOLDERS),
    st.integers(0, 12),
)
contents = st.builds(file, st.integers(1, 5), st.integers(0, 2))
tables = st.dictionaries(paths, contents, max_size=50)
prefixes = st.sampled_from(FOLDERS)
strategies = st.dictionaries(prefixes, st.sampled_from(list(MergeMode)), max_size=3)


@st.composite
def writes(draw: st.DrawFn, whens: Sequence[WriteCondition] = (WriteCondition.ALWAYS,)) -> WriteIntent:
    coming = draw(st.dictionaries(paths, contents, max_size=6))
    added = {path: one for path, one in coming.items() if draw(st.booleans())}
    removed = draw(st.lists(paths.filter(lambda path: path not in coming), unique=True, max_size=2))
    return WriteIntent(
        replaced=tuple(draw(st.lists(prefixes, unique=True, max_size=2)) if draw(st.booleans()) else ()),
        removed=tuple(removed),
        added=tuple(added.items()),
        put=tuple((path, one) for path, one in coming.items() if path not in added),
        when=draw(st.sampled_from(list(whens))),
    )


def random_write(random: Random, attempt: int, files: Collection[str] = ()) -> WriteIntent:
    """A write like those of jobs: mostly new files under names of its own, now and then single paths."""
    folder = random.choice(FOLDERS)
    new = {
        f"{folder}part-{attempt}-{number}": file(number + 1, attempt)
        for number in range(random.randint(0, 3))
    }
    kind = random.choice(("append", "append", "overwrite", "folder", "put", "remove"))
    known = sorted(files)
    return WriteIntent(
        replaced={"overwrite": ("",), "folder": (folder,)}.get(kind, ()),
        removed=(random.choice(known),) if kind == "remove" and known else (),
        added=tuple(new.items()) if kind not in ("put", "remove") else (),
        put=((f"{random.choice(FOLDERS)}{random.randint(0, 5):02}", file(attempt * 10 + 9, attempt)),)
        if kind == "put"
        else (),
    )
