"""The comparisons with brute force again, with seeds that nobody chose; a failure prints its seed."""

from __future__ import annotations

from collections.abc import Callable
from random import randrange

import pytest

from tests.chance import share, times
from tests.kernel import (
    test_chain,
    test_commit,
    test_history,
    test_horizon,
    test_merge,
    test_rebase,
    test_revert,
    test_transplant,
    test_tree,
)

ORACLES: list[Callable[[int], None]] = [
    test_tree.test_a_long_random_history_equals_the_dict_at_every_step,
    test_tree.test_insert_order_deletes_and_re_inserts_leave_no_trace,
    test_chain.test_a_long_line_of_any_batches_holds_what_the_model_holds,
    test_chain.test_ranges_of_commits_are_read_and_compared_as_of_dicts,
    test_history.test_is_ancestor_equals_brute_force,
    test_history.test_merge_bases_equal_brute_force,
    test_history.test_only_in_equals_brute_force_oldest_first,
    test_history.test_predecessors_and_times_equal_the_line_of_first_parents,
    test_history.test_walks_go_newest_first_over_every_commit_once,
    test_horizon.test_of_any_graph_what_is_near_a_head_is_kept_whole_and_the_rest_goes,
    test_commit.test_commits_with_fresh_and_stale_bases_equal_brute_force,
    test_merge.test_a_merge_equals_brute_force,
    test_merge.test_a_merge_with_a_way_for_every_key_equals_brute_force,
    test_merge.test_merging_again_brings_only_what_is_new,
    test_merge.test_a_merge_after_merges_crossed_equals_brute_force_on_the_virtual_base,
    test_transplant.test_a_transplant_equals_its_commits_applied_step_by_step,
    test_rebase.test_a_rebase_equals_a_transplant_onto_the_new_base_that_moves_the_branch,
    test_revert.test_a_revert_equals_brute_force_and_its_own_revert_restores,
]


@pytest.mark.reliability
@pytest.mark.parametrize("oracle", share(ORACLES, 3), ids=lambda oracle: oracle.__name__)
def test_comparisons_with_brute_force_hold_for_many_seeds(oracle: Callable[[int], None]) -> None:
    start = randrange(2**32)
    for seed in range(start, start + times(100)):
        print(f"seed {seed}")
        oracle(seed)
