"""Trees, writes and merges of tables of files against plain dictionaries."""

from __future__ import annotations

from functools import partial
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.formats.files import merge_rules, trees
from penstock.formats.files.files import FilesState
from penstock.formats.files.format import FilesFormat
from penstock.formats.files.intents import WriteCondition, WriteIntent
from penstock.formats.files.table_changes import apply_write
from penstock.kernel.format import AppliedChange, LaterCommitLookup
from penstock.kernel.objects import Objects
from penstock.model.merges import MergeMode
from penstock.model.objects import EMPTY_ROOT
from tests.chance import examples
from tests.formats.files.model import (
    FOLDERS,
    Clashed,
    Files,
    Shelf,
    asked,
    carried_out,
    file,
    intents,
    merged,
    paths,
    prefixes,
    random_write,
    strategies,
    tables,
    writes,
)

quick = settings(derandomize=True, deadline=None, max_examples=100)


@quick
@given(tables, st.lists(paths, max_size=10), prefixes, paths)
def test_a_tree_reads_like_the_dictionary(files: Files, others: list[str], prefix: str, after: str) -> None:
    shelf = Shelf()
    root = shelf.state(files).root
    cold = Objects(shelf.objects.store)
    assert trees.find_files(cold, root, [*files, *others]) == files
    below = {path: one for path, one in files.items() if path.startswith(prefix)}
    assert list(trees.list_below(cold, root, prefix)) == sorted(below.items())
    later = [(path, one) for path, one in sorted(below.items()) if path > after]
    assert list(trees.list_below(cold, root, prefix, after)) == later


@quick
@given(tables, tables, prefixes)
def test_two_trees_differ_where_the_dictionaries_do(one: Files, other: Files, prefix: str) -> None:
    shelf = Shelf()
    found = trees.find_differences(shelf.objects, shelf.state(one).root, shelf.state(other).root, prefix)
    assert list(found) == [
        (path, one.get(path), other.get(path))
        for path in sorted({*one, *other})
        if path.startswith(prefix) and one.get(path) != other.get(path)
    ]


@quick
@given(st.lists(writes(list(WriteCondition)), max_size=8))
def test_writes_do_what_they_do_to_a_dictionary(requests: list[WriteIntent]) -> None:
    """Whatever is refused names the paths that it is refused for, and leaves nothing behind."""
    shelf, files = Shelf(), Files()
    for write in requests:
        state = shelf.state(files)
        expected = asked(partial(carried_out, files, write))
        if expected is None:
            assert not shelf.write(state, write)[1]
            continue
        assert shelf.asked(partial(_written, shelf, state, write)) == expected
        files = files if isinstance(expected, Clashed) else expected


def _written(shelf: Shelf, state: FilesState, write: WriteIntent) -> AppliedChange:
    done = apply_write(shelf.objects, state, write)
    assert done is not None
    return AppliedChange(shelf.content(done[0]), done[1])


@quick
@given(tables, paths)
def test_a_write_that_expects_a_file_is_refused_if_there_is_another(files: Files, path: str) -> None:
    shelf = Shelf()
    state = shelf.state(files)
    there = files[path].address_at(path) if path in files else None
    assert shelf.write(state, WriteIntent(expected=((path, there),))) == (state, True)
    other = WriteIntent(expected=((path, f"{there}-else"),))
    assert shelf.asked(lambda: _written(shelf, state, other)) == Clashed([path])


@settings(quick, max_examples=examples(200))
@given(tables, tables, tables, st.lists(prefixes, max_size=2, unique=True), strategies)
def test_a_merge_is_what_a_look_at_every_path_says(
    origin: Files, theirs: Files, ours: Files, replaced: list[str], modes: dict[str, MergeMode]
) -> None:
    """With contents that repeat under different paths, folders that were replaced, and every way to settle
    what both sides changed; a conflict names the paths that it is about, and no others."""
    _check_merge(origin, theirs, ours, replaced, modes)


@settings(quick, max_examples=examples(200))
@given(tables, st.lists(writes(), max_size=4), st.lists(writes(), max_size=4), strategies)
def test_a_merge_of_sides_that_wrote_is_what_a_look_at_every_path_says(
    origin: Files, source: list[WriteIntent], target: list[WriteIntent], modes: dict[str, MergeMode]
) -> None:
    theirs, written = _after(origin, source)
    ours, _ = _after(origin, target)
    _check_merge(origin, theirs, ours, [prefix for one in written for prefix in one.replaced], modes)


def _check_merge(
    origin: Files, theirs: Files, ours: Files, replaced: list[str], modes: dict[str, MergeMode]
) -> None:
    shelf = Shelf()
    base, source, target = (shelf.content(shelf.state(one)) for one in (origin, theirs, ours))
    told = intents([WriteIntent(replaced=tuple(replaced))])
    expected = asked(lambda: merged(origin, theirs, ours, [] if target == base else replaced, modes))
    table = shelf.table(target, modes)
    assert shelf.asked(lambda: FilesFormat().merge(table, base, source, told)) == expected


def test_k2_a_merge_is_the_sources_writes_carried_out_on_the_target() -> None:
    """Where no path was changed by both sides, a merge is the same as if the writes had come in a row."""
    compared = 0
    for seed in range(400):
        random = Random(seed)
        origin = {f"{folder}{number:02}": file(number + 1) for folder in FOLDERS for number in range(4)}
        theirs, written = _after(origin, [random_write(random, one, origin) for one in (1, 2, 3)])
        ours, _ = _after(origin, [random_write(random, one, origin) for one in (4, 5)])
        replaced = [prefix for one in written for prefix in one.replaced]
        in_a_row, done = _after(ours, written)
        if len(done) < len(written) or isinstance(
            asked(partial(merged, origin, theirs, ours, replaced)), Clashed
        ):
            continue  # a path that both changed: in a row the later one counts, on two sides nobody's does
        compared += 1
        shelf = Shelf()
        base, source, target = (shelf.content(shelf.state(one)) for one in (origin, theirs, ours))
        done_at_once = partial(FilesFormat().merge, shelf.table(target), base, source, intents(written))
        assert shelf.asked(done_at_once) == in_a_row
    assert compared > 250


def _after(files: Files, requests: list[WriteIntent]) -> tuple[Files, list[WriteIntent]]:
    """A table after those of some writes that are not refused."""
    done: list[WriteIntent] = []
    for write in requests:
        found = asked(partial(carried_out, files, write))
        if isinstance(found, dict):
            files, done = found, [*done, write]
    return files, done


@quick
@given(tables, tables, tables)
def test_undoing_a_write_puts_back_its_paths_and_no_others(before: Files, after: Files, now: Files) -> None:
    shelf = Shelf()
    was, wanted, target = (shelf.content(shelf.state(one)) for one in (after, before, now))
    undone = partial(
        merge_rules.revert_files,
        shelf.table(target),
        shelf.objects,
        target,
        was,
        wanted,
        LaterCommitLookup(()),
    )
    assert shelf.asked(lambda: undone().applied) == asked(lambda: merged(after, before, now))


def test_an_empty_table_has_the_root_of_nothing() -> None:
    assert Shelf().state({}).root == EMPTY_ROOT
