"""Revisions: names, commit ids, and ways to walk from them."""

from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from penstock.errors import CommitNotFound, InvalidName, PenstockError, ReferenceNotFound
from penstock.kernel import kernel
from penstock.kernel.history import History
from penstock.lake.lake import Lake
from penstock.model.commits import EMPTY_COMMIT_ID
from penstock.model.encoding import encode, hash_object
from penstock.model.objects import EMPTY_ROOT, CommitObject
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.testing.counting_store import CountingStore
from tests.queue.hooks import HookedStore, SetClock, everything, new_kernel, new_lake, put, table


def _commits(lake: Lake, count: int, branch: str | None = None) -> list[str]:
    return [lake.branch(branch).put(f"{branch or 'm'}{number}", table()).id for number in range(count)]


def test_a_tilde_walks_back_by_first_parents(lake: Lake) -> None:
    commits = _commits(lake, 20)
    assert lake.resolve("main") == lake.resolve("main~0") == commits[-1]
    assert lake.resolve("main~") == lake.resolve("main~1") == commits[-2]
    for number in range(20):
        assert lake.resolve(f"main~{number}") == commits[19 - number]
    assert lake.resolve("main~20") == EMPTY_COMMIT_ID
    with pytest.raises(CommitNotFound, match="20 ancestors, not 21"):
        lake.resolve("main~21")


def test_a_caret_chooses_a_parent(lake: Lake) -> None:
    lake.branch("dev").create()
    dev, main = _commits(lake, 3, "dev"), _commits(lake, 2)
    merged = lake.merge("dev", "main").head
    assert lake.resolve("main^0") == merged
    assert lake.resolve("main^") == lake.resolve("main^1") == lake.resolve("main~1") == main[-1]
    assert lake.resolve("main^2") == dev[-1]
    assert lake.resolve("main^2~1") == dev[-2]
    assert lake.resolve("main^2^1~1") == dev[-3]
    with pytest.raises(CommitNotFound, match=r"no parent 3 of commit .*, which has 2 parents"):
        lake.resolve("main^3")
    with pytest.raises(CommitNotFound, match=r"no parent 2 of commit .*, which has 1 parent$"):
        lake.resolve("main~1^2")


def test_the_parent_of_a_first_commit_is_the_empty_lake(lake: Lake) -> None:
    _commits(lake, 1)
    assert lake.resolve("main~1") == EMPTY_COMMIT_ID
    with pytest.raises(CommitNotFound):
        lake.resolve("main~2")


def test_what_a_revision_comes_to_must_be_on_the_reference_not_where_it_starts(lake: Lake) -> None:
    main = _commits(lake, 2)
    lake.branch("dev").create()
    dev = _commits(lake, 2, "dev")
    assert lake.resolve(f"main@{dev[0]}~1") == main[-1]
    assert lake.resolve(f"main@{dev[1]}~3") == main[0]
    assert lake.resolve(f"main@{dev[1]}^^") == main[-1]
    assert lake.resolve(f"main@{dev[1]}*2000-01-01") == EMPTY_COMMIT_ID
    for away in (dev[0], f"{dev[1]}~1", f"{dev[0]}~0"):
        with pytest.raises(CommitNotFound, match=f"{dev[0]} is not in the history of 'main'"):
            lake.resolve(f"main@{away}")


def _iso(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


def test_a_star_goes_back_to_a_time(lake: Lake, clock: SetClock) -> None:
    commits = []
    for number in range(30):
        clock.go_on(60)
        commits.append(lake.branch().put(f"t{number}", table()))
    for number, commit in enumerate(commits):
        assert lake.resolve(f"main*{_iso(commit.time)}") == commit.id
        just_before = datetime.fromtimestamp(commit.time.timestamp() - 1, UTC)
        earlier = commits[number - 1].id if number else EMPTY_COMMIT_ID
        assert lake.resolve(f"main*{_iso(just_before)}") == earlier
    half_a_minute_later_ms = int(commits[7].time.timestamp() * 1000) + 30_000
    assert lake.resolve(f"main*{half_a_minute_later_ms}") == commits[7].id
    assert lake.resolve("main*2000-01-01") == EMPTY_COMMIT_ID
    assert lake.resolve("main*2999-12-31") == commits[-1].id
    assert lake.resolve(f"main*{_iso(commits[9].time)}~2") == commits[7].id
    assert lake.resolve(f"main~5*{_iso(commits[28].time)}") == commits[24].id
    assert lake.resolve("main*2999-12-31T00:00:00+05:30") == commits[-1].id


def test_times_of_one_microsecond_apart_are_told_apart(lake: Lake) -> None:
    first, second = _commits(lake, 2)
    time = lake.show(second).time
    assert lake.resolve(f"main*{_iso(time)}") == second
    assert lake.show(first).time < time


def test_steps_chain_in_the_order_they_are_written(lake: Lake) -> None:
    commits = _commits(lake, 10)
    assert lake.resolve("main~2~3") == commits[4]
    assert lake.resolve("main^^~2^") == commits[4]
    assert lake.resolve(f"{commits[8]}~2^1") == commits[5]
    assert lake.resolve(f"main@{commits[8]}~2") == commits[6]


def test_a_commit_id_may_be_whole_or_abbreviated_in_any_case(lake: Lake) -> None:
    commits = _commits(lake, 5)
    for commit in commits:
        for digits in (8, 9, 20, 63, 64):
            assert lake.resolve(commit[:digits]) == commit
            assert lake.resolve(commit[:digits].upper()) == commit
            assert lake.resolve(f"main@{commit[:digits]}") == commit
    with pytest.raises(PenstockError):
        lake.resolve(commits[0][:7])
    with pytest.raises(InvalidName):
        lake.resolve(f"main@{commits[0][:7]}")
    with pytest.raises(PenstockError):
        lake.resolve(commits[0] + "0")


def test_an_abbreviated_id_is_found_on_every_branch_and_tag(lake: Lake) -> None:
    lake.branch("dev").create()
    on_dev = _commits(lake, 3, "dev")
    lake.branch("gone").create()
    tagged = _commits(lake, 1, "gone")
    lake.tag("v1").create(at="gone")
    lake.branch("gone").delete()
    _commits(lake, 2)
    assert lake.resolve(on_dev[1][:10]) == on_dev[1]
    assert lake.resolve(tagged[0][:10]) == tagged[0]


def test_an_abbreviated_id_of_something_merged_is_found(lake: Lake) -> None:
    """Its only way leads through a merge whose first parent another branch has, too."""
    lake.branch("side").create()
    merged = _commits(lake, 2, "side")
    _commits(lake, 5)
    lake.branch("a-first").create()
    lake.branch("b-second").create()
    lake.merge("side", "b-second")
    lake.branch("side").delete()
    for commit in merged:
        assert lake.resolve(commit) == commit
        assert lake.resolve(commit[:12]) == commit
        assert lake.resolve(f"b-second@{commit[:12]}") == commit


def test_looking_for_an_abbreviated_id_reads_each_commit_once_however_many_branches_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = CountingStore(MemoryStore())
    lake = new_lake(store)
    shared = _commits(lake, 60)
    for number in range(20):
        lake.branch(f"b{number}").create()
        _commits(lake, 1, f"b{number}")
    steps = 0
    read = History.read_ancestor

    def link(history: History, one: bytes) -> Any:
        nonlocal steps
        steps += 1
        return read(history, one)

    monkeypatch.setattr(History, "read_ancestor", link)
    with pytest.raises(CommitNotFound):
        lake.resolve("0123456789")
    assert steps <= 2 * (60 + 20)
    cold = new_lake(store)
    store.reset()
    assert cold.resolve(shared[0][:12]) == shared[0]
    assert store.counts.objects_read <= 60 + 20


def test_an_abbreviated_id_is_looked_for_among_so_many_of_the_newest(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = _commits(lake, 10)
    lake.branch("old").create(at="main~8")
    on_old = _commits(lake, 1, "old")
    monkeypatch.setattr(kernel, "ABBREVIATION_SEARCH_MAX", 4)
    assert lake.resolve(commits[-4][:10]) == commits[-4]
    for commit in (commits[-5], on_old[0]):
        with pytest.raises(CommitNotFound, match="give the full id"):
            lake.resolve(commit[:10])
    assert lake.resolve(f"old@{on_old[0][:10]}") == on_old[0]


def _alike() -> dict[bytes, bytes]:
    """Two commits whose ids begin with the same 8 digits."""
    seen: dict[bytes, bytes] = {}
    for number in count():
        data = encode(CommitObject(root=EMPTY_ROOT, depth=1, generation=1, time_us=1, message=str(number)))
        one = hash_object(data)
        if one[:4] in seen:
            return {hash_object(seen[one[:4]]): seen[one[:4]], one: data}
        seen[one[:4]] = data
    raise AssertionError


def test_an_abbreviated_id_of_two_commits_is_refused_with_both(lake: Lake, store: HookedStore) -> None:
    pair = _alike()
    store.store(pair)
    for name, commit in zip(("left", "right"), pair, strict=True):
        lake.kernel.references.create_reference(name, Kind.BRANCH, commit)
    left, right = (commit.hex() for commit in pair)
    with pytest.raises(InvalidName, match="is ambiguous") as caught:
        lake.resolve(left[:8])
    assert left[:16] in str(caught.value)
    assert right[:16] in str(caught.value)
    assert lake.resolve(f"right@{right[:8]}") == right
    assert lake.resolve(left[:20]) == left


def test_a_commit_that_a_branch_does_not_have_is_not_on_it(lake: Lake) -> None:
    lake.branch("dev").create()
    on_dev = _commits(lake, 2, "dev")[-1]
    _commits(lake, 2)
    assert lake.resolve(on_dev) == on_dev
    for name in (f"main@{on_dev}", f"main@{on_dev[:10]}"):
        with pytest.raises(CommitNotFound) as caught:
            lake.resolve(name)
        assert on_dev[:10] in str(caught.value)
    lake.merge("dev", "main")
    assert lake.resolve(f"main@{on_dev}") == on_dev


def test_the_empty_lake_can_be_named_by_its_id(lake: Lake) -> None:
    assert lake.resolve(EMPTY_COMMIT_ID) == EMPTY_COMMIT_ID
    assert lake.resolve(f"main@{EMPTY_COMMIT_ID}") == EMPTY_COMMIT_ID
    assert list(lake.at(EMPTY_COMMIT_ID).entries()) == []


@pytest.mark.parametrize(
    "text",
    [
        *["", "~1", "^", "*2026-01-01", "main~-1", "main~a", "main~1x", "main^^x", "main*", "main*12-13"],
        *["main*2026-13-01", "main*2026-01-01T25:00:00Z", "main~9999999999", "main@", "main@xyz", "a b"],
        *["main@deadbeef@deadbeef", "main~1@deadbeef", "@deadbeefx", "main..dev", "main\n", "main\0", "é"],
        *["main~" + "1" * 5000, "x" * 5000, "main*" + "9" * 17],
    ],
)
def test_a_revision_that_cannot_be_is_refused(lake: Lake, store: HookedStore, text: str) -> None:
    before = everything(store)
    with pytest.raises(InvalidName):
        lake.kernel.resolve_revision(text)
    assert everything(store) == before


def test_a_name_that_does_not_exist_is_named(lake: Lake) -> None:
    for text in ("nosuch", "nosuch~3", "nosuch@" + "ab" * 32):
        with pytest.raises(ReferenceNotFound, match="'nosuch'") as caught:
            lake.resolve(text)
        assert caught.value.details["name"] == "nosuch"


def test_a_commit_that_does_not_exist_is_named(lake: Lake) -> None:
    for text in ("ab" * 32, "ab" * 4, "ab" * 32 + "~1"):
        with pytest.raises(CommitNotFound) as caught:
            lake.resolve(text)
        assert caught.value.details["commit"] in text


def test_walking_far_back_reads_little(clock: SetClock, store: HookedStore) -> None:
    kernel = new_kernel(store.inner, clock)
    made = [put(kernel, f"t{number % 3}", message=str(number)).head for number in range(1000)]
    times = [kernel.history.read_commit(one).time_us for one in made]
    for back in (1, 7, 500, 998):
        for text in (f"main~{back}", f"main*{_iso(datetime.fromtimestamp(times[-1 - back] / 1e6, UTC))}"):
            fresh = new_kernel(store, clock)
            store.fetched = 0
            assert fresh.resolve_revision(text)[0] == made[-1 - back]
            assert store.fetched <= 4 * 10, f"{text} in {store.fetched} reads"
