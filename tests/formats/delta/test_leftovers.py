"""Which files below a table may be removed, by their names, their age and what is needed."""

from __future__ import annotations

import random
from collections.abc import Collection

import msgspec
import pytest

from penstock.formats.delta.protocol.names import LOG
from penstock.formats.delta.publishing.leftovers import DeltaNeeds, is_needed, judge_files
from penstock.storage.buckets import BucketEntry, EntityTag
from penstock.storage.sweep_decisions import JudgedFile, SweepDecision

DATA_US, SCRATCH_US = 100, 200
OLD_US, MIDDLE_US, YOUNG_US = 99, 150, 201

UUID = "12345678-9abc-4def-8123-456789abcdef"
JOB = f"job={'0a' * 16}"

WRITTEN = [
    "part-00000-aa-c000.snappy.parquet",
    "day=2026-11-01/part-1.parquet",
    "day=a%3Ab/hour=__HIVE_DEFAULT_PARTITION__/part-1.parquet",
    "day=/part-1.parquet",
    "_change_data/cdc-1.parquet",
    "_change_data/day=1/cdc-1.parquet",
    "cdc-1.parquet",
    "_penstock/data/part-1.parquet",
    "_penstock/data/day=1/part-1.parquet",
    "_penstock/data/_change_data/day=1/cdc-1.parquet",
    f"deletion_vector_{UUID}.bin",
    f"aB/part-00000-{UUID}-c000.zstd.parquet",
    f"07/part-100000-{UUID}.c000.parquet",
    f"aB/deletion_vector_{UUID}.bin",
    f"_change_data/aB/cdc-00001-{UUID}.c000.parquet",
    f"_change_data/aBcDe/cdc-00001-{UUID}.c000.parquet",
    f"_penstock/data/aBcDe/part-00001-{UUID}.c000.parquet",
    f"_penstock/data/_change_data/a/cdc-00001-{UUID}.c000.parquet",
    f"_penstock/data/{JOB}/part-00000-{UUID}.c000.parquet",
    f"_penstock/data/{JOB}/__is_cdc=true/day=1/part-00000-{UUID}.c000.parquet",
    f"_penstock/data/{JOB}/_temporary/0/_temporary/attempt_1/day=1/part-00000-{UUID}.c000.parquet",
    f"_penstock/data/{JOB}/_temporary/0/task_1/a\nb=1/x",
    f"_change_data/{JOB}/day=1/part-00000-{UUID}.c000.parquet",
    f"_change_data/{JOB}/_temporary/0/task_1/part-00000-{UUID}.c000.parquet",
    f"_penstock/data/_change_data/{JOB}/_temporary/0/task_1/part-00000-{UUID}.c000.parquet",
]
OF_OTHERS = [
    "notes.txt",
    "orders.parquet",
    "my-part-1.parquet",
    "part-1.parquet.bak",
    "part-1.csv",
    "backup/part-1.parquet",
    "aB/part-1.parquet",
    f"backup/part-00000-{UUID}-c000.snappy.parquet",
    f"aB/cD/part-00000-{UUID}-c000.snappy.parquet",
    f"a-/part-00000-{UUID}-c000.snappy.parquet",
    f"aB/part-00000-{UUID}-c000.csv",
    f"{JOB}/_temporary/0/x",
    "_penstock/data/job=1/_temporary/0/x",
    f"_penstock/data/{JOB}/notes.txt",
    f"_penstock/{JOB}/_temporary/0/x",
    f"_penstock/data/day=1/{JOB}/_temporary/0/x",
    "_backup/part-1.parquet",
    "day=1/_backup/part-1.parquet",
    "_penstock/notes.txt",
    "_penstock/jobs/1/files.json",
    "_penstock/part-1.parquet",
    "_penstock/datapart-1.parquet",
    "_symlink_format_manifest/manifest",
    ".hoodie/x",
    ".notes.txt.crc",
    f"{LOG}{0:020}.json",
    f"{LOG}{0:020}.crc",
    f"{LOG}part-1.parquet",
    f"{LOG}_sidecars/part-1.parquet",
    f"{LOG}_last_checkpoint",
]


def needs(named: Collection[str] = (), beside: Collection[str] = (), published: int = -1) -> DeltaNeeds:
    return DeltaNeeds(named=named, beside=beside, published=published, data_us=DATA_US, scratch_us=SCRATCH_US)


def entry(name: str, modified_us: int = OLD_US) -> BucketEntry:
    return BucketEntry(name, 1, modified_us, EntityTag(None))


def fates(*entries: BucketEntry, **needed: object) -> dict[str, SweepDecision]:
    listed = sorted(entries, key=lambda one: one.key.encode())
    return {one.entry.key: one.fate for one in judge_files(listed, needs(**needed))}  # type: ignore[arg-type]


@pytest.mark.parametrize("name", WRITTEN)
def test_what_writers_call_data_goes_when_it_is_old_and_nobody_names_it(name: str) -> None:
    assert fates(entry(name)) == {name: SweepDecision.DATA}
    assert fates(entry(name, DATA_US)) == {name: SweepDecision.WAITING}
    assert fates(entry(name), named={name}) == {name: SweepDecision.KEPT}
    assert fates(entry(name), beside={name}) == {name: SweepDecision.KEPT}


@pytest.mark.parametrize("name", OF_OTHERS)
def test_what_is_called_otherwise_is_somebody_elses(name: str) -> None:
    assert fates(entry(name, 0), published=99) == {}


def test_what_lies_beside_the_log_goes_sooner() -> None:
    body, line = f"_penstock/bodies/{'0' * 64}.json", f"_penstock/{'a' * 32}/{3:020}.x.json"
    reads, note = "_penstock/reads/1/manifest", f"_penstock/creating/{UUID}"
    found = fates(*(entry(name, MIDDLE_US) for name in (body, line, reads, note)), beside={line})
    assert found == {body: SweepDecision.SCRATCH, reads: SweepDecision.SCRATCH, note: SweepDecision.SCRATCH}
    assert fates(*(entry(name, YOUNG_US) for name in (body, reads, note))) == {}


def test_a_staged_commit_goes_when_its_version_is_published() -> None:
    name = f"{LOG}_commits/{7:020}.12345678-9abc-4def-8123-456789abcdef.json"
    assert fates(entry(name, MIDDLE_US), published=7) == {name: SweepDecision.SCRATCH}
    assert fates(entry(name, MIDDLE_US), published=6) == {}
    assert fates(entry(name, YOUNG_US), published=7) == {}


@pytest.mark.parametrize("folder", ["", "day=1/", "_penstock/data/", f"_change_data/{JOB}/_temporary/0/"])
def test_a_checksum_goes_with_its_file_or_after_it(folder: str) -> None:
    name, own = f"{folder}part-1.parquet", f"{folder}.part-1.parquet.crc"
    assert fates(entry(name), entry(own)) == {name: SweepDecision.DATA, own: SweepDecision.DATA}
    assert fates(entry(name), entry(own), named={name}) == {name: SweepDecision.KEPT}
    assert fates(entry(name, YOUNG_US), entry(own)) == {name: SweepDecision.WAITING}
    assert fates(entry(own)) == {own: SweepDecision.DATA}, "its file is gone"
    assert fates(entry(own), named={name}) == {}, "its file is missing, and may be brought back"
    assert fates(entry(own, YOUNG_US)) == {}


def test_what_is_named_meanwhile_stays_with_its_checksum() -> None:
    named: set[str] = set()
    beside: set[str] = set()
    needed = needs(named, beside)
    listed = [entry(name) for name in (".part-1.parquet.crc", "_penstock/bodies/0.json", "part-1.parquet")]
    doomed: list[JudgedFile] = [*judge_files(listed, needed)]
    assert not any(is_needed(one, needed) for one in doomed)
    named.add("part-1.parquet")
    assert [one.entry.key for one in doomed if not is_needed(one, needed)] == ["_penstock/bodies/0.json"]
    beside.add("_penstock/bodies/0.json")
    assert all(is_needed(one, needed) for one in doomed)


def test_nothing_that_is_named_goes_whatever_else_is_there(seed: int) -> None:
    """Every mix of files that are old or young, named or not: only old ones go that nobody names."""
    drawn = random.Random(seed)
    for _ in range(200):
        names = drawn.sample(WRITTEN, 8)
        listed = [entry(name, drawn.choice((OLD_US, YOUNG_US))) for name in names]
        named = set(drawn.sample(names, 3))
        found = fates(*listed, named=named)
        gone = {name for name, fate in found.items() if fate is SweepDecision.DATA}
        assert gone == {one.key for one in listed if one.key not in named and one.modified_us == OLD_US}


@pytest.mark.parametrize(
    "inner",
    ["region=eu", "day=1/region=eu", "aB", "_penstock/data/day=1", "Region=EU/Day=1", "0=0"],
)
def test_nothing_is_judged_in_a_folder_with_a_log_of_its_own(inner: str) -> None:
    below = [
        f"{inner}/part-00000-{UUID}-c000.parquet",
        f"{inner}/.part-00000-{UUID}-c000.parquet.crc",
        f"{inner}/.part-gone.parquet.crc",
        f"{inner}/Hour=1/part-1.parquet",
        f"{inner}/a=1/part-1.parquet",
        f"{inner}/a=1/_delta_log/{0:020}.json",
    ]
    outside = [
        "part-1.parquet",
        "Day=1/part-1.parquet",
        "z=1/part-1.parquet",
        f"{inner}0=1/part-1.parquet" if "=" in inner else "day=0/part-1.parquet",
    ]
    log = f"{inner}/_delta_log/{0:020}.json"
    found = fates(*map(entry, (*below, *outside, log)))
    assert found == dict.fromkeys(outside, SweepDecision.DATA)


def test_files_that_come_before_a_log_that_there_is_not_go_in_the_end() -> None:
    names = [
        "A=1/B=1/part-1.parquet",
        "A=1/B=2/part-1.parquet",
        "A=1/b=1/part-1.parquet",
        "A=2/B=1/part-1.parquet",
    ]
    assert fates(*map(entry, names)) == dict.fromkeys(names, SweepDecision.DATA)


def test_inner_tables_are_told_apart_in_every_mix(seed: int) -> None:
    """Against the plain rule, over the whole of a listing: no folder above a file that goes has a log."""
    drawn = random.Random(seed)
    for _ in range(300):
        folders = [
            "/".join(drawn.choices(["A=1", "a=1", "0=1", "B=2", "b=2"], k=drawn.randint(0, 3)))
            for _ in range(8)
        ]
        names = {f"{folder}/part-1.parquet".lstrip("/") for folder in folders}
        names |= {f"{folder}/.part-1.parquet.crc".lstrip("/") for folder in folders[:4]}
        logs = {f"{folder}/_delta_log/{0:020}.json" for folder in drawn.sample(folders, 2) if folder}
        roots = tuple(log.partition("_delta_log/")[0] for log in logs)
        found = fates(*map(entry, names | logs))
        assert found == {name: SweepDecision.DATA for name in names if not name.startswith(roots or "none")}


@pytest.mark.parametrize(("length", "taken"), [(2, {2}), (1, {1, 2}), (4, {2, 4})])
def test_random_prefixes_have_the_tables_own_length_or_the_usual_one(length: int, taken: set[int]) -> None:
    names = {count: f"{'aB3d5'[:count]}/part-00000-{UUID}.c000.parquet" for count in range(1, 6)}
    needed = msgspec.structs.replace(needs(), prefix_length=length)
    found = {one.entry.key for one in judge_files(sorted(map(entry, names.values())), needed)}
    assert found == {names[count] for count in taken}
