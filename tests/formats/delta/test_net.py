"""What several commits come to as one, and what of others' commits is news to them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.formats.delta.branch_log.branch_log import CommitTerms
from penstock.formats.delta.branch_log.file_transitions import files_before
from penstock.formats.delta.branch_log.net_change import NetChange, NetStep, copy_terms, fold_all, fold_steps
from penstock.formats.delta.branch_log.replacements import Replacement
from penstock.formats.delta.branch_log.state_difference import unite_protocols
from penstock.formats.delta.branch_log.unmerged_commits import drop_repeated_replacements, select_unmerged
from penstock.formats.delta.protocol.actions import Action, Add, Cdc, CommitInfo, DomainMetadata, Remove, Txn
from penstock.formats.delta.protocol.transaction import DeltaReads, PartitionFilter
from tests.formats.delta.logs import protocol
from tests.formats.delta.managed import SCHEMA, add, remove
from tests.formats.delta.rows import inline_vector, vector_data

BLIND = CommitTerms(DeltaReads())
ALL = CommitTerms(DeltaReads(whole_table=True))
ANEW = CommitTerms(DeltaReads(), ())


def steps(
    *commits: list[Action], terms: CommitTerms = BLIND, may_repeat_files: bool = False
) -> list[NetStep]:
    return [
        NetStep(number, tuple(actions), terms, may_repeat_files=may_repeat_files)
        for number, actions in enumerate(commits, 1)
    ]


def nothing_before(_: Collection[str]) -> dict[str, str | None]:
    return {}


def folded(*commits: list[Action], terms: CommitTerms = BLIND) -> NetChange:
    (net,) = fold_steps(steps(*commits, terms=terms), SCHEMA)
    return net


def feed(path: str) -> Cdc:
    return Cdc(path=path, partition_values={}, size=1, data_change=False)


# --- files --------------------------------------------------------------------------------------------------


def test_no_commits_come_to_nothing() -> None:
    assert fold_steps([], SCHEMA) == ()


def test_a_file_added_and_removed_is_neither() -> None:
    net = folded([add("a"), add("b")], [remove("a")])
    assert (net.adds, net.removes) == ((add("b"),), ())


def test_a_file_that_is_back_again_brings_no_new_rows() -> None:
    net = folded([remove("a")], [add("a")])
    assert (net.adds, net.removes) == ((add("a", data_change=False),), ())


def test_a_file_that_was_back_and_is_removed_after_all_is_removed() -> None:
    assert folded([remove("a")], [add("a")], [remove("a")]).removes == (remove("a"),)


def test_rows_that_came_and_were_rewritten_are_told_as_new_ones() -> None:
    compaction: list[Action] = [
        remove("new", data_change=False),
        remove("old", data_change=False),
        add("both", data_change=False),
    ]
    net = folded([add("new")], compaction)
    assert (net.adds, net.removes) == ((add("both"),), (remove("old"),))


def test_a_compaction_alone_stays_one_that_changes_no_rows() -> None:
    net = folded([remove("old", data_change=False), add("both", data_change=False)], [add("new")])
    assert net.removes == (remove("old", data_change=False),)
    assert net.adds == (add("both", data_change=False), add("new"))


@pytest.mark.parametrize("was_there", [True, False])
def test_a_file_told_once_more_and_then_removed_was_there_before_or_was_not(was_there: bool) -> None:
    net = folded([add("a", data_change=False)], [remove("a", data_change=False)])
    assert (net.adds, net.removes) == ((), ())
    settled = net.resolve_doubtful_files({"a": None} if was_there else {})
    assert settled.removes == ((remove("a", data_change=False),) if was_there else ())
    assert not settled.doubtful


@given(st.lists(st.lists(st.tuples(st.booleans(), st.sampled_from("abcdef")), max_size=4), max_size=6))
def test_the_net_change_leads_where_its_commits_lead(told: list[list[tuple[bool, str]]]) -> None:
    base = {"a", "b", "c"}
    live, commits = set(base), list[list[Action]]()
    for commit in told:
        actions: dict[str, Action] = {}
        for is_add, name in commit:
            if name in actions or is_add == (name in live):
                continue
            actions[name] = add(name) if is_add else remove(name)
        live = (live | {n for n, one in actions.items() if isinstance(one, Add)}) - {
            n for n, one in actions.items() if isinstance(one, Remove)
        }
        commits.append(list(actions.values()))
    net = fold_all(steps(*commits), SCHEMA)
    removed = {one.path for one in net.removes}
    assert removed <= base
    assert (base - removed) | {one.path for one in net.adds} == live


# --- what is not about files --------------------------------------------------------------------------------


def test_the_last_batch_and_the_last_word_of_a_domain_count_and_commit_infos_do_not() -> None:
    net = folded(
        [CommitInfo({"operation": "WRITE"}), Txn(app_id="a", version=1), Txn(app_id="b", version=7)],
        [DomainMetadata(domain="d", configuration="1")],
        [Txn(app_id="a", version=2), DomainMetadata(domain="d", configuration="2")],
    )
    assert set(net.state) == {
        Txn(app_id="a", version=2),
        Txn(app_id="b", version=7),
        DomainMetadata(domain="d", configuration="2"),
    }


def test_commits_with_files_of_the_change_feed_and_others_stay_apart() -> None:
    neutral: list[Action] = [Txn(app_id="a", version=1)]
    nets = fold_steps(steps(neutral, [add("a")], neutral, [add("b"), feed("c")], neutral, [add("d")]), SCHEMA)
    assert [(net.adds, net.feed) for net in nets] == [
        ((add("a"),), ()),
        ((add("b"),), (feed("c"),)),
        ((add("d"),), ()),
    ]
    assert [net.after for net in nets] == [0, 3, 5]


def test_commits_that_all_have_files_of_the_change_feed_become_one() -> None:
    net = folded([add("a"), feed("c1")], [add("b"), feed("c2")])
    assert net.feed == (feed("c1"), feed("c2"))


# --- what they rest on --------------------------------------------------------------------------------------


def reading(*reads: DeltaReads) -> DeltaReads:
    return fold_all([NetStep(1, (), CommitTerms(one)) for one in reads], SCHEMA).terms.reads


def test_what_was_read_adds_up() -> None:
    day = PartitionFilter({"day": ("mon",)})
    assert reading(DeltaReads(), DeltaReads()) == DeltaReads()
    assert reading(DeltaReads(files=frozenset("a")), DeltaReads(files=frozenset("b"))) == DeltaReads(
        files=frozenset("ab")
    )
    assert reading(DeltaReads(applications=frozenset("a")), DeltaReads(whole_table=True)) == DeltaReads(
        whole_table=True, applications=frozenset("a")
    )
    in_a_day = DeltaReads(partitions=(day,), files=frozenset("a"))
    assert reading(in_a_day, DeltaReads(partitions=(day,))) == DeltaReads(partitions=(day,))


def test_files_beside_partitions_without_files_count_as_the_whole_table() -> None:
    day = PartitionFilter({"day": ("mon",)})
    assert reading(DeltaReads(files=frozenset("a")), DeltaReads(partitions=(day,))).whole_table


def test_what_replaced_a_partition_has_not_picked_the_files_that_it_removed() -> None:
    day = PartitionFilter({"day": ("mon",)})
    picked = NetStep(1, (remove("a", "mon"), remove("b", "tue")), ALL)
    replaced = NetStep(2, (remove("c", "mon"), add("d", "mon")), CommitTerms(DeltaReads(), (day,)))
    net = fold_all([picked, replaced], SCHEMA)
    assert net.removes == (remove("b", "tue"),)
    assert net.adds == (add("d", "mon"),)
    assert net.terms == CommitTerms(DeltaReads(whole_table=True), (day,))


def test_a_table_written_anew_rests_on_nothing_that_was_read_before_or_after() -> None:
    anew = NetStep(2, (remove("a"), add("b")), CommitTerms(DeltaReads(), ()))
    read = CommitTerms(DeltaReads(whole_table=True, applications=frozenset({"etl"})))
    net = fold_all([NetStep(1, (), read), anew, NetStep(3, (remove("b"), add("c")), read)], SCHEMA)
    assert net.terms == CommitTerms(DeltaReads(applications=frozenset({"etl"})), ())
    assert (net.removes, net.adds) == ((), (add("c"),))


def test_a_table_written_anew_from_what_it_held_rests_on_that() -> None:
    anew = NetStep(1, (remove("a"), add("b")), CommitTerms(DeltaReads(whole_table=True), ()))
    assert fold_all([anew], SCHEMA).terms.reads.whole_table


def test_a_replacement_that_was_reverted_replaces_nothing_elsewhere() -> None:
    before = NetStep(1, (remove("x"), add("mine")), CommitTerms(DeltaReads(files=frozenset({"x"}))))
    anew = NetStep(2, (remove("a"), remove("mine"), add("b")), CommitTerms(DeltaReads(), ()))
    restored = CommitInfo({"operation": "RESTORE"})
    back = NetStep(
        3, (restored, remove("b"), add("a"), add("mine")), CommitTerms(DeltaReads(files=frozenset({"b"})))
    )
    net = fold_all([before, anew, back], SCHEMA)
    assert net.terms == CommitTerms(DeltaReads(files=frozenset({"x", "b"})))
    assert net.removes == (remove("x"),)
    assert {one.key for one in net.adds if one.data_change} == {add("mine").key}
    assert fold_all([before, anew], SCHEMA).terms.replaces == ()


def test_a_replacement_of_which_a_part_is_left_still_replaces() -> None:
    anew = NetStep(1, (remove("a"), add("b"), add("c")), CommitTerms(DeltaReads(), ()))
    back = NetStep(2, (CommitInfo({"operation": "RESTORE"}), remove("b"), add("a")), ALL)
    assert fold_all([anew, back], SCHEMA).terms.replaces == ()


def test_a_table_that_was_emptied_after_it_was_written_anew_is_empty_elsewhere_too() -> None:
    anew = NetStep(1, (add("b"),), CommitTerms(DeltaReads(), ()))
    net = fold_all([anew, NetStep(2, (remove("b"),), ALL)], SCHEMA)
    assert (net.actions, net.terms.replaces) == ((), ())


def test_a_difference_rests_on_what_its_commits_read_and_is_strict_if_they_replaced_files() -> None:
    difference = NetChange(removes=(remove("a"),), adds=(add("d"),), terms=ALL)
    appended = copy_terms(difference, folded([add("d")]))
    assert (appended.terms, appended.is_strict) == (BLIND, False)
    anew = fold_all([NetStep(1, (remove("a"), add("d")), CommitTerms(DeltaReads(), ()))], SCHEMA)
    told = copy_terms(difference, anew)
    assert (told.terms, told.is_strict) == (ALL, True)


def replacing(*ids: bytes, is_whole: bool = True) -> tuple[Replacement, ...]:
    """Replacements of everything."""
    return tuple(Replacement(one, (), is_whole) for one in ids)


def written_anew(*ids: bytes, actions: Sequence[Action], is_whole: bool = True) -> NetStep:
    return NetStep(1, tuple(actions), ANEW, replacements=replacing(*ids, is_whole=is_whole))


def test_of_a_replacement_that_both_sides_have_nothing_is_brought() -> None:
    anew = written_anew(b"1", actions=[remove("a"), add("b")])
    assert drop_repeated_replacements([anew], [anew], SCHEMA) == ([NetStep(1, (), BLIND)], [anew])


def test_a_replacement_is_told_by_its_id_and_not_by_its_files() -> None:
    anew = written_anew(b"1", actions=[remove("a"), add("b")])
    same_files = written_anew(b"2", actions=anew.actions)
    assert drop_repeated_replacements([same_files], [anew], SCHEMA).steps == [anew]
    emptied = written_anew(b"1", actions=[])
    assert drop_repeated_replacements([], [emptied], SCHEMA).steps == [emptied]


def test_a_known_replacement_takes_what_its_own_branch_had_before() -> None:
    anew = written_anew(b"1", actions=[remove("mine"), remove("other"), add("b")])
    brought, _ = drop_repeated_replacements([anew], [NetStep(1, (add("mine"),), BLIND), anew], SCHEMA)
    assert brought[1].actions == (remove("mine"),)


def test_a_replacement_before_a_known_one_has_nothing_left_to_take() -> None:
    first, second = written_anew(b"1", actions=[add("a")]), written_anew(b"2", actions=[remove("a")])
    brought, known = drop_repeated_replacements([second], [first, second], SCHEMA)
    assert [step.terms.replaces for step in brought] == [None, None]
    assert (brought[0].replacements, known) == (first.replacements, [second])


def test_a_replacement_before_a_known_one_of_a_part_of_it_lands_only_where_no_file_came() -> None:
    first = written_anew(b"1", actions=[add("a")])
    mondays = Replacement(b"2", (PartitionFilter({"day": ("mon",)}),))
    tuesdays = Replacement(b"3", (PartitionFilter({"day": ("tue",)}),))
    second = NetStep(2, (), CommitTerms(DeltaReads(), mondays.partitions), replacements=(mondays,))
    other = NetStep(1, (), CommitTerms(DeltaReads(), tuesdays.partitions), replacements=(tuesdays,))
    assert not drop_repeated_replacements([second], [first, second], SCHEMA).steps[0].has_known_terms
    assert drop_repeated_replacements([second], [other, second], SCHEMA).steps[0] == other


def test_what_else_a_commit_did_that_holds_a_known_replacement_is_brought_where_no_file_came() -> None:
    there = written_anew(b"1", actions=[remove("a"), add("b")])
    summed = written_anew(b"1", actions=[remove("a"), add("b"), add("more")], is_whole=False)
    (step,) = drop_repeated_replacements([there], [summed], SCHEMA).steps
    assert step.actions == (add("b"), add("more"))
    assert (step.terms, step.has_known_terms) == (ALL, False)


def test_of_several_replacements_in_a_commit_those_are_done_that_are_new() -> None:
    days = PartitionFilter({"day": ("mon",)}), PartitionFilter({"day": ("tue",)})
    known, new = Replacement(b"1", days[:1], False), Replacement(b"2", days[1:], False)
    removes = tuple(remove(day, day) for day in ("mon", "tue", "wed"))
    both = NetStep(1, removes, CommitTerms(DeltaReads(), days), replacements=(known, new))
    (step,) = drop_repeated_replacements([both._replace(replacements=(known,))], [both], SCHEMA).steps
    assert (step.terms.replaces, step.replacements) == (days[1:], (new,))
    assert step.actions == (remove("wed", "wed"),)


def test_a_replacement_without_an_id_lands_only_where_no_file_came() -> None:
    (step,) = drop_repeated_replacements([], [NetStep(1, (add("b"),), ANEW)], SCHEMA).steps
    assert (step.terms.reads, step.has_known_terms) == (DeltaReads(whole_table=True), False)


def test_the_sum_of_commits_has_the_ids_of_all_replacements_in_it() -> None:
    one, other = written_anew(b"1", actions=[add("a")]), written_anew(b"2", actions=[add("b")])
    assert fold_all([one, other], SCHEMA).replacements == replacing(b"1", b"2", is_whole=False)
    assert fold_all([one], SCHEMA).replacements == replacing(b"1")


# --- news ---------------------------------------------------------------------------------------------------


def left(winners: list[NetStep], known: list[NetStep], net: NetChange) -> list[tuple[Action, ...]]:
    return [step.actions for step in select_unmerged(winners, known, net, nothing_before, []).winners]


def test_what_the_branch_has_merged_before_is_no_news() -> None:
    winners = steps([add("a"), remove("b"), Txn(app_id="x", version=1)], [remove("a")])
    known = steps([add("a"), Txn(app_id="x", version=1)], [remove("b")])
    assert left(winners, known, NetChange()) == [(), (remove("a"),)]


def test_files_that_came_and_went_or_went_and_came_back_are_no_news() -> None:
    winners = steps([add("a"), remove("b")], [remove("a"), add("b")], [remove("c")])
    assert left(winners, [], NetChange()) == [(), (), (remove("c"),)]


def test_a_file_told_once_more_and_then_removed_is_news() -> None:
    winners = steps([add("a", data_change=False)], [remove("a")])
    assert left(winners, [], NetChange())[1] == (remove("a"),)


def test_the_same_change_that_came_another_way_is_shared() -> None:
    net = NetChange(adds=(add("a"), add("b")), removes=(remove("c"),))
    found = select_unmerged(steps([remove("c"), add("a")]), [], net, nothing_before, [])
    assert [step.actions for step in found.winners] == [()]
    rest = net.drop_files(found.shared)
    assert (rest.adds, rest.removes) == ((add("b"),), ())


def test_two_that_removed_the_same_file_have_not_done_the_same() -> None:
    found = select_unmerged(
        steps([remove("c"), add("x")]),
        [],
        NetChange(adds=(add("a"),), removes=(remove("c"),)),
        nothing_before,
        [],
    )
    assert [step.actions for step in found.winners] == [(remove("c"), add("x"))]
    assert not found.shared


# --- protocols ----------------------------------------------------------------------------------------------


def test_the_union_of_protocols_has_the_features_of_both_and_is_the_first_where_it_has_them_all() -> None:
    one, other = protocol("managedCommits", "domainMetadata"), protocol("managedCommits")
    assert unite_protocols(one, other) is one
    both = unite_protocols(other, protocol("appendOnly", reader=["deletionVectors"]))
    assert (both.min_reader_version, both.min_writer_version) == (3, 7)
    assert both.reader_features == ("deletionVectors",)
    assert both.writer_features == ("appendOnly", "deletionVectors", "managedCommits")


def test_what_nobody_can_tell_of_a_commit_makes_its_net_change_strict() -> None:
    told, untold = NetStep(1, (add("a"),), ALL), NetStep(2, (remove("b"),), ALL, has_known_terms=False)
    assert not fold_all([told], SCHEMA).is_strict
    both = fold_all([told, untold], SCHEMA)
    assert both.is_strict
    assert copy_terms(NetChange(adds=(add("a"),)), both).is_strict


# --- what was there before ----------------------------------------------------------------------------------


def test_commits_tell_which_of_their_files_were_there_before_them() -> None:
    told = files_before(steps([remove("a"), add("b")], [remove("b"), add("c")], [add("a")]))
    assert told == {"a": (None,), "b": None, "c": None}


def test_a_file_whose_vector_is_replaced_was_there_with_the_former_one() -> None:
    first, second = (inline_vector(vector_data(rows), len(rows)) for rows in ([1], [1, 2]))
    gone = msgspec.structs.replace(remove("a"), deletion_vector=first)
    come = msgspec.structs.replace(add("a"), deletion_vector=second)
    assert files_before(steps([gone, come])) == {"a": (first.unique_id,)}


def test_of_a_file_that_is_told_without_new_rows_nobody_knows_whether_it_was_there_before() -> None:
    compaction: list[Action] = [remove("a", data_change=False), add("b", data_change=False)]
    assert files_before(steps(compaction, [remove("b")])) == {"a": (None,)}


def test_of_a_file_that_a_commit_may_have_repeated_nobody_knows_either() -> None:
    several = steps([add("a"), remove("b")], [add("b")], may_repeat_files=True)
    assert files_before(several) == {"b": (None,)}


# --- files that were there already --------------------------------------------------------------------------


def test_a_file_that_was_only_added_once_more_is_not_brought() -> None:
    (net,) = fold_steps(steps([add("a"), add("b")], may_repeat_files=True), SCHEMA)
    assert net.doubtful_paths == ["a", "b"]
    settled = net.resolve_doubtful_files({"a": None})
    assert settled.adds == (add("b"),)
    assert not settled.doubtful_paths


def test_a_file_that_was_added_once_more_and_removed_goes_if_it_was_there() -> None:
    (net,) = fold_steps(steps([add("a")], [remove("a")], may_repeat_files=True), SCHEMA)
    assert net.resolve_doubtful_files({"a": None}).removes == (remove("a"),)
    assert net.resolve_doubtful_files({}).actions == ()


def test_a_file_that_was_added_once_more_removed_and_added_is_as_it_was() -> None:
    (net,) = fold_steps(steps([add("a")], [remove("a")], [add("a")], may_repeat_files=True), SCHEMA)
    assert net.resolve_doubtful_files({"a": None}).actions == ()
    assert net.resolve_doubtful_files({}).actions == (add("a"),)


def test_a_file_is_in_no_doubt_that_the_commits_have_removed_before() -> None:
    anew = NetStep(1, (remove("a"), add("b")), ANEW)
    (net,) = fold_steps([anew, *steps([add("a")], may_repeat_files=True)], SCHEMA)
    assert "a" not in net.doubtful_paths
    assert add("a") in net.resolve_doubtful_files({"a": None, "b": None}).adds


def test_a_file_whose_statistics_were_told_later_brings_its_rows_still() -> None:
    (net,) = fold_steps(steps([add("a")], [add("a", data_change=False)]), SCHEMA)
    assert net.adds == (add("a"),)


@pytest.mark.parametrize(
    ("there", "expected"), [({}, [(), ()]), ({"a": None}, [(add("a"),), (remove("a"),)])]
)
def test_a_removal_of_a_file_that_was_added_once_more_is_news(
    there: dict[str, str | None], expected: list[tuple[Action, ...]]
) -> None:
    winners = steps([add("a")], [remove("a")], may_repeat_files=True)
    found = select_unmerged(winners, [], NetChange(), lambda _: there, [])
    assert [step.actions for step in found.winners] == expected
