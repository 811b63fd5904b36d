"""The rules that `make test` tries on every store, and not only in memory and behind a server.

A rule is the owner's and not the store's: what a store can break is how the owner's rows are made, replaced,
raced for and read by another process. Each of these occurs here; `make verify` tries all rules on all stores.
"""

from __future__ import annotations

SMOKE = frozenset(
    {
        # create: one row for a place, wanted by two processes
        "test_r24_of_many_who_create_at_one_place_exactly_one_wins",
        # commit: one after the other, at once, several tables in one swap, and the same attempt again
        "test_r1_versions_are_ratified_one_after_the_other",
        "test_r3_of_many_who_commit_a_version_one_does",
        "test_r3_several_tables_get_their_versions_together_or_none_does",
        "test_r7_also_once_its_version_was_published_and_forgotten",
        # conflict: what won is read back
        "test_r10_a_conflict_tells_the_commits_that_won_and_the_latest_version",
        # publish: what another process ratified
        "test_r22_anybody_publishes_what_somebody_else_ratified",
        # checkpoint
        "test_r34_a_checkpoint_or_a_compaction_is_made_of_published_versions_only",
        # hand-over: to the lake, back, and a release that another process finishes
        "test_r26_an_adopted_table_is_the_lakes_from_the_version_after_its_last",
        "test_r32_a_released_table_is_published_to_its_end_and_the_file_systems_again",
        "test_r33_a_release_that_is_stopped_takes_nothing_more_and_is_finished_by_anybody",
        # upkeep: what any commit of the lake needs
        "test_r35_what_a_commit_of_the_lake_needs_stays",
        # readers: another process, and one among writers and publishers
        "test_r14_the_latest_version_never_goes_back",
        "test_r13_there_is_no_gap_while_others_commit_and_publish",
    }
)
