"""What messages advise to do, and what following the advice does to rows that were acknowledged.

Every text of the program that advises to write, delete, move, force or repeat something is one of these, and
each is followed by a test: ``tests/documents/test_advice.py`` sees to both.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Advice(NamedTuple):
    """Texts that advise the same."""

    says: tuple[str, ...]
    """The part of each text that advises, with ``{}`` where it has something put in."""
    does: str
    """What comes of following it."""
    followed_by: str
    """The test that follows it, as pytest names it."""


REPEATING: Final = (
    Advice(
        (
            "Nothing was changed; try again",
            "nothing was changed, try again",
            "Nothing was added; try again",
            "as many as it accepts; try again shortly",
            "as many as {} allows; try again shortly",
            "and fewer while other callers need them; try again shortly",
            "about to delete files that this write needs; try again when it has ended",
            "was not ready after {} s; try again",
            "was created and dropped by others during every try; try again",
            "was changed during every try to read it; try again",
            "and dropped the table while it was being declared; try again",
            "was changed by other writers too often; try again",
            "is being adopted at this moment; try again",
            "the outcome is not known yet: try again",
            "the outcome is not known yet; try again",
            "another process is publishing the table at {}; try again",
            "another process is promoting the table at {}; try again",
            "is published up to version {} only, not {}; try again",
            "was not cancelled; try again",
        ),
        "Nothing was changed by the refused request, so repeating it does the work once.",
        "tests/advice/test_repeating.py::test_what_was_given_up_is_tried_again_and_done_once",
    ),
    Advice(
        ("were changed while the rows were written: run the statement again",),
        "Nothing was committed. The statement, run again, writes the rows once.",
        "tests/spark/test_sql_served.py::test_columns_that_change_while_rows_are_written_refuse_them",
    ),
    Advice(
        ("The statement reads the table that it writes to. Run it again",),
        "Nothing was committed. The statement, run again, reads the table as it is then.",
        "tests/spark/test_own_reads.py::test_a_statement_is_refused_if_others_changed_what_it_read_of_its_table",
    ),
    Advice(
        ("or set TMPDIR, then try again",),
        "Nothing was committed, and no file is left. With room elsewhere the rows are written once.",
        "tests/formats/delta/test_writing.py::test_a_full_disk_for_temporary_files_is_named",
    ),
    Advice(
        ("has no room left: free space there, then try again",),
        "Nothing was changed by the refused request, so repeating it does the work once.",
        "tests/outages/test_full_disk.py::test_tables_on_a_full_disk_say_so_and_take_rows_again_once_there_is_room",
    ),
    Advice(
        (
            "it is not known whether {} of {} was written; try again",
            "it is not known whether {}/{} was written; try again",
            "the owner of the table at {} cannot be determined; try again",
            "it could not be recorded at {} that its files must be kept; try again",
        ),
        "If the file was written, the retry finds it and keeps it; if not, the retry writes it. It "
        "exists once.",
        "tests/advice/test_repeating.py::test_a_lance_write_whose_answer_was_lost_is_tried_again_and_there_once",
    ),
    Advice(
        (
            "repeat it with the same idempotency key",
            "repeat the request with idempotency key",
            "Repeating the request with idempotency key {} is safe",
            "repeating the request is safe",
        ),
        "The request is applied once, whether or not the first try was applied.",
        "tests/server/test_limits.py::test_a_write_that_takes_too_long_may_still_be_applied",
    ),
    Advice(
        ("Write again with job_id='{}'",),
        "The job commits once. If it had committed before, the answer is the earlier result.",
        "tests/spark/files/test_jobs.py"
        "::test_property_21_after_a_lost_answer_the_job_can_be_asked_for_again_by_its_id",
    ),
    Advice(
        (
            "To write it again, give the job another id",
            "give this job another id",
            "was tried {} times; give it another id",
            "'{}' was not written: give this job another id",
        ),
        "The job runs as a new one and writes its rows. The earlier job is not undone; its message says"
        " what happened to its rows.",
        "tests/advice/test_repeating.py::test_a_job_whose_id_is_another_requests_writes_under_a_new_one",
    ),
    Advice(
        (
            "was closed; open the lake again",
            "was closed; open it again",
            "was closed during this operation; open it again",
            "across a fork; open it again in the child process",
            "could not be synced: {}. Open the lake again",
        ),
        "A new handle reads what is stored, with every acknowledged row.",
        "tests/advice/test_repeating.py::test_a_lake_that_was_closed_is_opened_anew_with_all_rows",
    ),
    Advice(
        (
            "Open the table again, and write to its newest version",
            "Open the table again, and write to its newest version",
            "read version {} and repeat the work, or rebase it onto the newer versions",
            "read the table again, and run the job again",
            "is no longer in its log: read it again",
        ),
        "The refused write left nothing in the table. The repeated write goes on top of what others "
        "wrote and loses none of it.",
        "tests/formats/delta/test_conflict_advice.py"
        "::test_a_writer_that_was_overtaken_reads_again_and_repeats_its_work",
    ),
    Advice(
        ("does not match its size and SHA-256; write it again", "at any time; write them again"),
        "The files were part of no commit, so no reader saw them. They are written again and committed once.",
        "tests/advice/test_files.py::test_files_that_waited_too_long_are_written_again",
    ),
    Advice(
        ("restart the query with its checkpoint",),
        "The stream continues after the last batch that it read, and reads the new columns.",
        "tests/spark/without_session/test_stream_offsets.py"
        "::test_new_columns_end_the_stream_and_are_read_after_a_restart",
    ),
    Advice(
        ("run penstock init '{}' to migrate",),
        "The database's tables are changed to what this version needs. All stored data stays.",
        "tests/stores/test_postgres.py::test_an_older_schema_is_migrated_by_init_once_and_by_nobody_else",
    ),
)
CONFLICTS: Final = (
    Advice(
        (
            "to take the target's, merge the table with the mode 'drop'",
            "keep the target's with the mode 'drop'",
            "keep the target's with the mode 'drop'",
            "keep this one with the mode 'drop'",
            "keep it with the mode 'drop'",
            "leave the table out with the mode 'drop'",
        ),
        "The target keeps its rows. The source's rows stay on its branch, and later merges of that "
        "branch leave them out too: write them to the target if they are wanted there.",
        "tests/formats/delta/test_conflict_advice.py::test_the_advice_of_a_conflict_leads_out_of_it",
    ),
    Advice(
        (
            "to take one side, merge the table with the mode 'force' (the source's) or 'drop' (the target's)",
            "to take one side, merge it with the mode 'force' (the source's) or 'drop' (the target's)",
            "merge that with the mode 'force' or 'drop'",
            "take one side with the mode 'force' or 'drop'",
            "take one side, or write it again",
            "bring it back with the mode 'force', or leave it with 'drop'",
            "restore it with the mode 'force', or leave it dropped with 'drop'",
            "use the mode 'force' (the source's) or 'drop' (the target's)",
        ),
        "The table has the rows of the side that was taken. The rows of the other side are no longer in"
        " it; the commits that wrote them stay in the history and can be read.",
        "tests/formats/files/test_conflict_advice.py::test_the_advice_of_a_conflict_leads_out_of_it",
    ),
    Advice(
        (
            "rebase the source onto the target without the table (mode 'drop'), then run the job again",
            "rebase the source onto the target without it and run the job again under a new id",
            "To redo it: penstock rebase {} --onto {}{}{}, then the job, under a new id",
        ),
        "The branch loses its changes to the table. Its old commits can be recovered for half of the "
        "grace period; after that, only the job can write the rows again. A job id or idempotency key "
        "that was used counts as done, so the job needs a new one. A stream does not send its batches "
        "again: take a side instead, or write their rows by hand.",
        "tests/advice/test_repeating.py::test_a_job_runs_again_after_a_rebase_under_a_new_id",
    ),
    Advice(
        (
            "or repeat the source's changes on the target",
            "merge the other way first, and then this way",
            "set them to the same values on both sides, and repeat the merge",
            "repeat the change, or make it in a transaction with the policy 'rebase'",
        ),
        "The target has the rows of both sides.",
        "tests/advice/test_lance.py::test_both_sides_are_had_as_a_merge_advises",
    ),
    Advice(
        (
            "rename one of them",
            "rename one of the two",
        ),
        "Both tables exist, each under its own name, with all rows.",
        "tests/formats/delta/test_conflict_advice.py::test_the_advice_of_a_conflict_leads_out_of_it",
    ),
    Advice(
        ("drop or rename it here too", "To take the other one, drop this one first, then merge"),
        "The dropped table leaves the branch with the rows that it has there. Earlier commits still "
        "have it, and reverting the drop restores it.",
        "tests/advice/test_lance.py::test_a_table_that_made_way_for_another_comes_back_by_a_revert",
    ),
    Advice(
        (
            "write the changes of the other side there again",
            "adopt the table and append the rows that the other side has",
        ),
        "The table has all rows up to the version at which it was released. The other side's later "
        "changes are written again; until then only its branch has them.",
        "tests/advice/test_delta.py::test_a_branch_from_before_a_table_was_handed_back_brings_its_rows_by_hand",
    ),
    Advice(
        (
            "include the commits that changed the columns",
            "merge fewer commits at once",
            "include its later commits in another request",
            "merge branches instead of transplanting",
        ),
        "Everything is merged, in one merge or in several.",
        "tests/formats/delta/test_conflict_advice.py::test_the_advice_of_a_conflict_leads_out_of_it",
    ),
    Advice(
        (
            "revert the named commits first, beginning with the newest",
            "To undo it alone: revert the later commits first, beginning with the newest",
            "without any later change, revert the commit with the mode 'force' for it",
            "to its state before the commit, without any later change, with the mode 'force'",
            "to its state at that commit, without any later change, with the mode 'force'",
            "or leave the table as it is with the mode 'drop'",
            "to leave it as it is, revert the commit with the mode 'drop' for it",
            "revert the commit that did so first, or leave it with the mode 'drop'",
            "drop or rename that one and revert again, or leave it as it is with the mode 'drop'",
            "revert those first, or use the mode 'force', which drops the table with all its rows",
            "or the mode 'drop', which leaves it as it is",
        ),
        "A new version removes what the commit did and nothing else; with 'force' also everything "
        "later, with 'drop' nothing. The commits stay in the history, and reverting the revert restores"
        " the rows.",
        "tests/formats/delta/test_conflict_advice.py::test_the_advice_of_a_conflict_leads_out_of_it",
    ),
    Advice(
        (": revert that commit instead",),
        "A new version removes what the merge brought and restores the rows that it removed; later "
        "changes stay.",
        "tests/formats/delta/test_undo.py"
        "::test_an_overwrite_of_a_branch_whose_merge_took_rows_of_main_is_undone_with_the_merge",
    ),
    Advice(
        (
            "undo the merge instead",
            "To undo single commits, revert them",
            "cannot be aborted; 'penstock revert' undoes a commit",
        ),
        "A new version removes what is undone. The commits stay in the history, and reverting the "
        "revert restores the rows.",
        "tests/advice/test_lance.py::test_what_was_undone_as_advised_comes_back_by_undoing_that",
    ),
    Advice(
        (
            "revert that commit, and then this one",
            "revert those commits, the newest one first, and then this one",
            "before this commit, without any later change, with the mode 'force'",
            "leave the table as it is with the mode 'drop'",
        ),
        "A new version removes what the commits did; with 'force' also everything later, with 'drop' "
        "nothing. Reverting the revert restores the rows.",
        "tests/formats/lance/test_reverting.py"
        "::test_rows_that_were_changed_since_are_a_conflict_with_ways_out",
    ),
    Advice(
        ("in files that a later commit wrote; revert that later commit first",),
        "The first revert restores the files as the commit wrote them; the second one removes them.",
        "tests/formats/files/test_rewritten_files.py"
        "::test_a_commit_whose_rows_were_compacted_since_is_not_undone_by_itself",
    ),
    Advice(
        ("may hold the same rows; revert that later commit first",),
        "The first revert brings the removed file back; the second one takes it away, and brings the files"
        " that it was made of.",
        "tests/formats/files/test_rewritten_files.py"
        "::test_rows_that_were_removed_after_a_compaction_do_not_come_back_by_its_undo",
    ),
    Advice(
        ("revert the later change first, and then this commit",),
        "The first revert restores the table; the second one undoes the commit.",
        "tests/formats/lance/test_reverting.py"
        "::test_a_commit_of_a_table_that_was_dropped_waits_for_the_table",
    ),
    Advice(
        ("drop the table to undo both, or leave it as it is with the mode 'drop'",),
        "Dropping removes the table with all its rows, and reverting the drop restores it. With the "
        "mode 'drop' the table stays.",
        "tests/formats/lance/test_reverting.py"
        "::test_a_table_that_was_changed_since_its_creation_is_not_reverted_away",
    ),
    Advice(
        ("rename it, then revert the commit, or leave it as it is with the mode 'drop'",),
        "Both tables exist, each at its own key. With the mode 'drop' only the present table stays.",
        "tests/formats/lance/test_reverting.py::test_another_table_in_its_place_is_a_conflict",
    ),
    Advice(
        ("revert the original commit on this branch instead",),
        "The revert undoes what the commit did on this branch.",
        "tests/formats/lance/test_reverting.py::test_a_revert_is_not_repeated_where_its_rows_never_were",
    ),
    Advice(
        ("repeat the change, or revert the commit that reverted it",),
        "The table has the commit's changes again.",
        "tests/formats/lance/test_reverting.py"
        "::test_a_reverted_commit_comes_back_by_a_revert_where_too_much_was_done_for_a_transplant",
    ),
    Advice(
        (
            "merge the branch, or drop the table",
            "merge the branch instead",
            "merge that branch instead",
            "cannot be rebased; rebase others onto it",
        ),
        "The default branch keeps its versions and gets those of the other branch on top. A dropped "
        "table leaves the branch, and reverting the drop restores it.",
        "tests/advice/test_delta.py::test_a_default_branch_that_cannot_be_moved_gets_the_rows_by_a_merge",
    ),
)
RESTORING: Final = (
    Advice(
        ("penstock restore --all --to {} --branch {}",),
        "New versions set all tables to their state at that commit; tables that were created later are "
        "dropped. The history stays: restoring to the commit before brings everything back.",
        "tests/restore/test_tables.py::test_the_advice_for_a_default_branch_that_cannot_be_assigned_gives_readers_the_same_rows",
    ),
    Advice(
        (
            "to remove it, drop it: penstock delete {}",
            "to restore a dropped table, restore it to a commit",
        ),
        "The table leaves the branch. Earlier commits still have it, and a restore to one of them "
        "brings it back with all rows.",
        "tests/advice/test_restore.py::test_a_table_that_is_to_be_gone_is_dropped_as_advised_and_comes_back",
    ),
    Advice(
        ("restore a newer state, or put the files back",),
        "The table gets the newer state; or, once the files are back, the state that was asked for. "
        "Until then nothing changes.",
        "tests/advice/test_restore.py::test_files_that_are_gone_are_brought_back_and_the_state_with_them",
    ),
    Advice(
        ("put the files back, or leave the table as it is with the mode 'drop'",),
        "Once the files are back, the commit's rows are restored. Until then nothing changes.",
        "tests/formats/delta/test_undo.py::test_files_that_are_gone_from_storage_do_not_come_back",
    ),
    Advice(
        ("restore another version, or bring the file back from a backup",),
        "The table gets the other version; or, once the manifest is back, the version that was asked "
        "for. Until then nothing changes.",
        "tests/advice/test_restore.py::test_a_manifest_that_is_gone_is_brought_back_and_the_version_with_it",
    ),
    Advice(
        ("restore it to one of its versions instead",),
        "A new version sets the table to that version; the lake still manages it.",
        "tests/restore/test_tables.py::test_a_table_that_was_adopted_since_goes_back_to_its_versions_only",
    ),
    Advice(
        (
            "restore it to a commit or to a time",
            "name that table, or restore to a commit",
            "give one key, or restore to a revision",
        ),
        "What the request names is set to its state at that time. The refused request changed nothing.",
        "tests/advice/test_restore.py::test_what_has_no_versions_is_restored_to_a_commit",
    ),
)
DELTA: Final = (
    Advice(
        (
            "'penstock resync {}' imports the table's versions, with all their rows",
            "'penstock resync --all' does so for every table of the lake",
            "'penstock resync' imports the versions of the log",
            "'penstock resync' imports the versions of the folder",
            "'penstock resync' imports them",
            "'penstock resync --all' takes over what they have",
            "'penstock resync {}' imports the versions of the log",
            "'penstock resync {}' imports those versions, with all their rows",
        ),
        "The lake has all versions of the table's own log or folder and continues after them. Versions "
        "that only the lake has are added on top; if they cannot be, the resync is refused until "
        "`--leave-own` allows leaving them out.",
        "tests/lake/test_resync.py::test_a_resync_takes_over_all_rows_and_keeps_key_id_history_and_branches",
    ),
    Advice(
        (
            "'penstock resync {} --leave-own' imports the versions at that location",
            "write their changes again",
        ),
        "The table has its own versions. The lake's versions can be read at the commit that the message"
        " names, and changes that are written again go on top.",
        "tests/lake/test_resync.py::test_what_cannot_be_added_on_top_is_left_only_if_that_is_said",
    ),
    Advice(
        (
            "Bring the original file back",
            "try again; otherwise put the file back",
            "restore it from a backup, or read a version without it",
            "Restore that file from a backup or from an older version of the object, and publish again",
            "Restore it from a backup or from older versions of the objects, and publish again",
            "Restore the log of the table and publish again",
        ),
        "Nothing is written until the file has its original bytes again. Then every version is read and"
        " published as before.",
        "tests/advice/test_delta.py::test_what_was_taken_from_a_log_is_brought_back_and_all_is_published",
    ),
    Advice(
        (
            "If the table was deleted on purpose, drop it from the lake",
            "If that was on purpose, drop the table from the lake",
        ),
        "The table leaves the branch, as its files have left storage. Versions that only the lake has "
        "can be read at earlier commits while their files exist.",
        "tests/advice/test_delta.py::test_a_table_that_was_deleted_on_purpose_is_dropped",
    ),
    Advice(
        ("Rename it, as in '….damaged'", "if not, restore the file from a backup"),
        "The table is read from its commits, with all rows; the file stays under its new name. If "
        "commits are missing too, the table can be read once a backup has restored them.",
        "tests/advice/test_delta.py::test_a_damaged_checkpoint_is_renamed_and_all_rows_are_read",
    ),
    Advice(
        ("Move it away, and write again",),
        "The repeated write puts the right bytes there, and every version that needs the file can be read.",
        "tests/formats/delta/test_composing.py"
        "::test_a_body_that_is_there_already_is_the_same_and_one_that_is_not_what_it_says_is_told",
    ),
    Advice(
        ("Revert the commit that dropped it",),
        "The table is restored with all versions, published or not.",
        "tests/advice/test_delta.py::test_a_table_that_was_dropped_is_had_back_whole_by_a_revert",
    ),
    Advice(
        ("penstock delta recover",),
        "The lake owns the table as its log has it. Versions that the lost owner had not published are "
        "missing; the command names files that may belong to them.",
        "tests/formats/delta/test_recovery.py"
        "::test_versions_that_cannot_be_known_to_have_existed_are_named_one_by_one",
    ),
    Advice(
        (
            "Move it out of the folder, or rewrite it as Parquet",
            "Move the file, so that every folder on its path is column=value, or none is",
            "Move the files, so that all are in folders of the same partition columns",
            "Rewrite one of the files with the column name and type of the other",
        ),
        "The folder is not a table of the lake yet, and nothing was changed. Once its files fit "
        "together, the table has all of their rows.",
        "tests/formats/delta/test_parquet_folder.py::test_advice_about_a_folder_leads_to_a_table_with_all_rows",
    ),
    Advice(
        (
            "To adopt the table in its present state, try again",
            "there is a Delta table already; adopt it: penstock delta adopt",
            "Adopt it: penstock delta adopt",
            "penstock delta adopt",
            "adopt it first",
            "commit to its log, or adopt it again",
            "another writer's commit came first; adopt it again in its present state",
            "or adopt these one by one, with --table",
            "Release it there first: penstock delta release",
            "Delete the key, then adopt the table: penstock delta adopt",
        ),
        "The lake decides the table's commits from its newest version on; every version stays. A key "
        "that had to be deleted first only pointed at the table.",
        "tests/advice/test_delta.py::test_a_table_goes_from_one_lake_to_another_with_all_rows",
    ),
    Advice(
        (
            "delete the rows there too and erase it (penstock erase",
            "or drop it and erase it (penstock erase",
        ),
        "The rows go from the clone as well. Until both are erased, the one that is not has them. A clone "
        "that is dropped and erased is gone for good; the table that it was cloned from stays.",
        "tests/sweep/test_clones.py::test_an_erase_of_the_source_lists_the_clone_that_holds_rows",
    ),
    Advice(
        (
            "Copy its rows into another table and release that one: lake.create_table",
            "Drop the clone on every branch first",
        ),
        "A copy has all rows in files of its own. Once a table is released, whoever owns it may remove "
        "files that a clone had: one that was dropped may not be readable when it is restored.",
        "tests/sweep/test_clones.py::test_neither_a_clone_nor_its_source_is_released",
    ),
    Advice(
        ("If only this lake writes there, use --sole-writer",),
        "The lake writes without asking storage whether a file exists. Another writer at the same "
        "location could overwrite a version, or be overwritten: use the option only if there is none.",
        "tests/formats/delta/test_conversion.py::test_storage_that_overwrites_needs_the_word_of_the_only_writer",
    ),
    Advice(
        (
            "copy its rows into a table of the lake",
            "Copy its rows into a table of the lake",
            "copy the other columns into a table of the lake",
        ),
        "A second table has the rows. The first one is unchanged.",
        "tests/advice/test_delta.py::test_the_rows_of_an_invalid_table_are_copied",
    ),
    Advice(
        ("; drop it first", "as the change data feed does: rename it first"),
        "The constraint is dropped, or the column renamed; rows stay.",
        "tests/formats/delta/test_alterations.py::test_what_refused_changes_advise_makes_them_possible",
    ),
    Advice(
        ("Merge it in parts, or with Spark: penstock.spark.merge",),
        "Each part is a commit of its own; together they merge all rows.",
        "tests/row_changes/test_merge_source.py::test_a_source_that_is_too_large_is_merged_in_parts",
    ),
    Advice(
        ("unset {} (ALTER TABLE … UNSET TBLPROPERTIES)",),
        "Delta Spark writes a version without the feature; rows stay.",
        "tests/interop/test_delta_spark.py"
        "::test_what_a_refusal_advises_makes_the_table_one_that_can_be_adopted",
    ),
    Advice(
        ("Rewrite such files first: lake.table(…).optimize()",),
        "Files with deletion vectors are replaced by files with the remaining rows.",
        "tests/formats/delta/test_iceberg_compat.py"
        "::test_a_table_with_vectors_suits_iceberg_once_its_files_are_written_anew",
    ),
    Advice(
        ("include the commits that changed the constraints",),
        "The rows come together with the constraints that they were checked against.",
        "tests/formats/delta/test_constraints.py"
        "::test_a_commit_is_not_repeated_where_its_rows_were_not_checked",
    ),
    Advice(
        ("or rewrite the table's files without their deleted rows",),
        "A new version has the remaining rows in other files.",
        "tests/spark/test_scans.py::test_more_deleted_rows_than_can_be_held_are_refused_with_a_way_out",
    ),
    Advice(
        ("remove that in the same commit",),
        "The commit names each file once, so its rows count once.",
        "tests/advice/test_delta.py::test_a_file_gets_another_deletion_vector_in_one_commit",
    ),
    Advice(
        (
            "replace all rows: mode='overwrite', overwrite_schema=True",
            "select partitions by other columns, or replace all of them",
            "or replace all files of this one",
        ),
        "The new rows replace the old ones, which earlier versions still have.",
        "tests/advice/test_files.py::test_what_was_replaced_as_advised_is_in_the_history",
    ),
    Advice(
        ("rename them", "Rename the column", "is not nullable; assign '{}' too"),
        "Nothing was written; the rows can be written under other names, or with the value.",
        "tests/spark/test_update.py::test_values_whose_types_allow_nulls_are_taken_where_they_have_none",
    ),
)
LANCE: Final = (
    Advice(
        ("register it there, and deregister it again",),
        "The other lake gives up the table, whose versions all stay in its folder.",
        "tests/lance/test_namespace_owners.py"
        "::test_who_dies_before_letting_go_leaves_the_table_to_the_lake_which_can_register_it_again",
    ),
    Advice(
        ("create the branch here, repeat its changes, and only then delete it there",),
        "Lance's own branch exists here with its rows before the other one is deleted. The versions of "
        "that one can be read at earlier commits of the source.",
        "tests/advice/test_lance.py::test_a_branch_of_lances_own_is_made_again_before_it_is_deleted",
    ),
    Advice(
        ("delete the tag there, or move it to the newest version", "points to no version; delete it there"),
        "Only the name goes; versions and rows stay.",
        "tests/advice/test_lance.py::test_a_tag_that_is_deleted_takes_no_row_along",
    ),
    Advice(
        (
            "Drop the index on this branch, and create it again",
            "drop the index there, and create it again",
            "drop them on the other side, and create them here later",
            "drop it there, and merge again",
        ),
        "The index is removed and can be built again from the rows, which stay.",
        "tests/advice/test_lance.py::test_an_index_that_is_in_the_way_is_dropped_and_made_again",
    ),
    Advice(
        ("and its first version cannot be undone; drop the table instead",),
        "The table leaves the branch with the rows of its first version, and a revert restores it.",
        "tests/advice/test_lance.py::test_a_first_version_is_undone_by_dropping_the_table",
    ),
    Advice(
        ("Rewrite the table with Lance, and register the new one",),
        "A second table has the rows. The first one is unchanged.",
        "tests/advice/test_lance.py::test_a_table_of_the_oldest_format_is_written_anew",
    ),
    Advice(
        ("Restore it from a backup", "Restore what is missing from a backup of"),
        "The version can be read again, with all rows. Restoring an earlier version adds a new version "
        "and removes none.",
        "tests/advice/test_lance.py::test_a_file_that_is_brought_back_makes_its_version_readable",
    ),
    Advice(
        (
            (
                "restore a version of it that can be read; if none can, drop the table there, and create it "
                "again"
            ),
        ),
        "The restored version is the newest one again, with its rows. A dropped table leaves that "
        "branch; its readable versions stay in the history.",
        "tests/advice/test_lance.py"
        "::test_a_version_that_can_be_read_is_restored_where_the_newest_has_lost_a_file",
    ),
    Advice(
        ("write_dataset with the mode 'overwrite'",),
        "A declared table without versions gets its first version; there is nothing to overwrite.",
        "tests/advice/test_lance.py::test_a_declared_table_gets_its_first_rows",
    ),
    Advice(
        ("drop it first", "Delete what is in it first", "use 'penstock delete {}'"),
        "What is deleted leaves the branch, and a revert restores it.",
        "tests/advice/test_lance.py::test_a_namespace_is_emptied_and_a_revert_brings_all_back",
    ),
)
FILES: Final = (
    Advice(
        ("copy it, then remove it",),
        "The other table has the file before this one loses it.",
        "tests/advice/test_files.py::test_a_file_is_copied_to_another_table_and_removed_then",
    ),
    Advice(
        ("write it again under its path",),
        "The file gets another name in storage, at the same path of the table.",
        "tests/spark/files_read/test_reading_files.py"
        "::test_a_file_that_lies_under_a_name_that_spark_passes_over_is_refused",
    ),
    Advice(
        ("Create the table of the catalog again with",),
        "The table in Spark's catalog only points at the lake, where the rows stay.",
        "tests/spark/files_session/test_mapped_reads.py::test_partitions_are_those_of_the_lake",
    ),
)
LAKES: Final = (
    Advice(
        ("until 'penstock move SOURCE --cancel' lets it stay",),
        "The lake stays at the source, which has everything.",
        "tests/cli/test_copy.py::test_a_move_can_be_cancelled_until_it_is_complete",
    ),
    Advice(
        (
            "Run the same command again",
            "run the same command again. If the copy is damaged again, choose another location; a move",
            "complete that, or choose another location",
            "To complete the copy, run the same command again",
            "to complete the copy, run the same 'penstock {}' again",
        ),
        "The source has everything until the copy has been compared with it. Cancelling a copy leaves "
        "the source as it was.",
        "tests/advice/test_copies.py::test_a_copy_that_was_killed_is_run_again_and_has_all_rows",
    ),
    Advice(
        ("choose another location, or delete the database there first (not the files of tables)",),
        "The deleted database is part of a copy to which nothing was ever written. The lake and its "
        "tables stay where they are.",
        "tests/advice/test_copies.py::test_a_cancelled_copy_is_deleted_and_begun_anew",
    ),
    Advice(
        (
            "Restore the lake's database from a backup",
            "restore its database from a backup",
            "restore the lake's database from a backup",
        ),
        "The lake has its state at the time of the backup. Commits since then are missing; tables whose"
        " logs or folders have them accept no commits until 'penstock resync'. First move away the old "
        "database's files beside it (`penstock.db-wal`, `penstock.db-shm`).",
        "tests/advice/test_copies.py::test_a_lake_whose_database_is_damaged_comes_back_from_a_backup",
    ),
    Advice(
        ("put it back", "If what is there now was put there on purpose, open the lake again"),
        "The lake continues with its old file. Opened again instead, it has what the new file has, and "
        "no more.",
        "tests/advice/test_copies.py::test_a_database_that_was_moved_away_is_put_back_with_all_rows",
    ),
    Advice(
        (
            "Copy the directory, while no process writes to it, to a location where this process may write",
            "for several processes, copy the lake to a store that they can share",
        ),
        "A second lake has everything that the first one had; the first one is unchanged, or has moved.",
        "tests/advice/test_copies.py::test_a_directory_of_rocksdb_is_copied_and_read",
    ),
    Advice(
        (
            "let that history expire: penstock horizon",
            "Restore the log from a backup",
        ),
        "Commits before the horizon are given up. Branches and tags keep their present state.",
        "tests/advice/test_horizons.py::test_history_that_cannot_be_read_expires_and_branches_stay",
    ),
    Advice(
        (
            "Drop the table that should not be there",
            "no kept commit has the table any more: penstock horizon",
        ),
        "The table leaves the branch, and its own data goes when its history expires. The other table "
        "keeps its data.",
        "tests/advice/test_horizons.py::test_a_table_inside_of_another_is_dropped_and_the_other_one_stays",
    ),
    Advice(
        (
            "can use a shorter time: penstock sweep --nobody-writes",
            "'penstock sweep' removes their objects when they are old enough",
            "'penstock sweep' removes only files that no retained commit needs",
            "'penstock sweep' removes deleted rows once no retained commit contains them",
            "'penstock sweep --remove-data' removes data files",
            "are left to 'penstock sweep --remove-data'",
            "penstock sweep removes the tag when none has it any more",
        ),
        "The sweep removes what no retained commit needs. With a shorter time than the lake's grace "
        "period it may also remove files of a write that is not committed yet: use it only while "
        "nothing writes.",
        "tests/advice/test_horizons.py::test_a_sweep_takes_nothing_that_a_kept_commit_has",
    ),
    Advice(
        (
            "remove it (penstock backups expire {} {})",
            "forget it (penstock backups forget {}{})",
        ),
        "The backup is removed, or the lake stops keeping files for it: rows that only the backup had "
        "are gone, as an erase requires. The branches of the lake keep all their rows.",
        "tests/backup/test_erased_tables.py"
        "::test_an_erase_names_the_backups_that_hold_the_rows_and_later_backups_are_whole",
    ),
    Advice(
        (
            "run the command again with --own, which seals that lake",
            "and is to take that lake's place: penstock restore-backup BACKUP PLACE --own",
        ),
        "The lake that was backed up accepts no more writes and can still be read, with everything that"
        " was committed after the backup. The restored lake has its id and its tables.",
        "tests/backup/test_restored_lakes.py::test_to_own_the_tables_seals_the_source_for_good",
    ),
    Advice(
        ("If 'penstock fsck' finds nothing wrong with the lake, run the same command again",),
        "All objects are copied again; earlier backups at the same location stay.",
        "tests/backup/test_backups.py::test_a_backup_killed_anywhere_is_completed_by_the_next_one",
    ),
    Advice(
        (
            "this one was delayed for too long. Run the same command again",
            "Run the same command again: it completes",
        ),
        "The next run completes what was begun.",
        "tests/backup/test_backups.py::test_a_backup_killed_anywhere_is_completed_by_the_next_one",
    ),
    Advice(
        ("Remove it where it is: penstock backups expire PLACE {}",),
        "The backup's files are removed unless another backup has them; or the lake forgets a backup "
        "that no longer exists.",
        "tests/backup/test_backups_with_data.py"
        "::test_a_backup_with_data_that_is_lost_is_forgotten_only_if_that_is_said",
    ),
    Advice(
        ("The same command, run again, makes a new backup of the present state",),
        "The incomplete backup is given up, and a new one is made. Other backups stay.",
        "tests/backup/test_backups_with_data.py"
        "::test_a_file_that_goes_away_meanwhile_is_named_and_the_repeat_begins_anew",
    ),
    Advice(
        ("Run the same command again; if the files are missing again, find out what removes them there",),
        "The missing files are copied again.",
        "tests/backup/test_backups_with_data.py::test_a_file_that_the_target_lost_is_found_and_copied_again",
    ),
    Advice(
        ("With --data, TARGET must be a directory or a bucket: penstock backup DIRECTORY --data",),
        "The backup is made there; the refused command wrote nothing.",
        "tests/backup/test_backups_with_data.py::test_a_large_file_is_copied_in_pieces",
    ),
    Advice(
        ("Move the folder away, if its files are not needed",),
        "The files of the backup are restored there. The folder that was moved away is unchanged.",
        "tests/backup/test_backups_with_data.py::test_another_file_in_the_place_of_one_is_left_alone",
    ),
    Advice(
        ("To restore a backup as a lake: penstock restore-backup BACKUP PLACE",),
        "A lake has everything that the backup has; the backup stays as it is.",
        "tests/backup/test_restored_lakes.py::test_beside_its_source_it_reads_managed_tables_and_changes_none",
    ),
    Advice(
        ("Bring the files back, choose a later backup, or use --missing-ok",),
        "The lake is restored; tables whose files are missing cannot be read on these branches, as before.",
        "tests/backup/test_restored_lakes.py::test_files_that_are_gone_are_named_before_anything_is_written",
    ),
    Advice(
        ("repeat the command with the same --map, and change them afterwards with 'penstock root map'",),
        "The lake has the mapping of its first restore, and takes over the tables if that was requested.",
        "tests/backup/test_moved_roots.py"
        "::test_a_copy_beside_the_lake_reads_the_new_place_and_takes_over_with_the_same_mapping",
    ),
    Advice(
        ("Open the lake again; a server has to be started again",),
        "The process finds the files at their new location. Until then it changed nothing.",
        "tests/backup/test_moved_roots.py::test_a_process_that_had_the_lake_open_says_that_it_has_to_open_it_again",
    ),
    Advice(
        ("Move or copy all files below the old location, with the same names, or use --missing-ok",),
        "The lake finds all files at the new location. With --missing-ok, tables whose files are "
        "missing cannot be read until the files are copied there.",
        "tests/backup/test_moved_roots.py::test_nothing_is_mapped_while_files_are_missing",
    ),
    Advice(
        (
            "'penstock move SOURCE --cancel' cancels it",
            "if it is too late for that, run the same move again to complete it",
        ),
        "The lake stays at the source, which has everything; or it is at the target with everything.",
        "tests/copy/test_undo_move.py::test_only_a_move_between_these_places_is_undone",
    ),
    Advice(
        ("To move the lake elsewhere with these changes: penstock move {} PLACE",),
        "The lake moves on from the target, with everything.",
        "tests/copy/test_moving.py::test_a_lake_can_move_on_and_on",
    ),
    Advice(
        (
            "'penstock copy' makes a copy and leaves the lake as it is",
            "To make a copy instead, answer no and use 'penstock copy' or 'penstock backup'",
        ),
        "With --yes the source accepts no more writes, and the target has everything. A copy leaves the"
        " source as it is.",
        "tests/cli/test_copy.py::test_a_move_that_nobody_confirms_changes_nothing",
    ),
    Advice(
        ("TARGET is missing: penstock move SOURCE TARGET",),
        "The lake moves to an empty location; the source can be read and accepts no more writes.",
        "tests/advice/test_copies.py::test_a_copy_that_was_killed_is_run_again_and_has_all_rows",
    ),
)
WORK: Final = (
    Advice(
        ("nothing of it was committed: run again what wrote in it",),
        "A new transaction writes the rows. No reader ever saw those of the old one.",
        "tests/advice/test_transactions.py::test_a_transaction_that_was_aborted_is_run_again",
    ),
    Advice(
        (
            "'penstock tx commit {id}' finishes",
            "'penstock tx commit ID' finishes it",
            "'penstock tx commit {}' finishes it",
        ),
        "The transaction lands once, however often it is asked to.",
        "tests/cli/test_tx.py::test_one_is_committed_by_hand_as_often_as_wanted",
    ),
    Advice(
        ("'penstock tx abort {id}' can abort it instead", "abort it with 'penstock tx abort {id}'"),
        "The transaction ends without landing, and its rows are removed. If it had landed already, the "
        "answer says so, and the rows stay.",
        "tests/transactions/test_stuck.py"
        "::test_what_keeps_it_from_landing_is_mended_or_it_is_aborted_after_a_while",
    ),
    Advice(
        (
            "Remove one, or combine several into one query",
            "make it read less, or remove it and run it as a check of publish",
            "remove the expectation first",
        ),
        "The lake stops checking that rule; rows stay.",
        "tests/advice/test_transactions.py::test_an_expectation_that_is_removed_takes_no_row_along",
    ),
)
ERASING: Final = (
    Advice(
        ("rebase it (penstock rebase {}), or delete it",),
        "The branch has the table as it is on the default branch, with its own rows on top.",
        "tests/erase/test_erase_older_than.py"
        "::test_references_hold_it_if_they_are_older_and_younger_ones_stay_readable",
    ),
    Advice(
        ("not finished: run this again{}",),
        "What was too young to remove is removed once no writer can depend on it; live rows stay.",
        "tests/erase/test_erase_delta.py"
        "::test_an_erase_waits_for_the_grace_period_says_until_when_and_ends_after_it",
    ),
    Advice(
        ("until the erase has begun; try again, or if it does not end, erase the table again",),
        "The erase is continued, and the branch can be written to after a rebase; the refused request "
        "wrote nothing.",
        "tests/erase/test_erase_turns.py"
        "::test_an_erase_that_was_killed_is_taken_up_and_the_branch_is_written_to_again",
    ),
    Advice(
        ("delete the fork, and then its note ({}); --all-references erases the table here anyway",),
        "The fork is deleted, then the files that it shared with the lake; rows of the lake stay.",
        "tests/sweep/test_table_copies.py::test_an_erase_ends_once_the_fork_and_its_note_are_removed",
    ),
    Advice(
        ("try again when the erase has ended; if it does not end, erase '{}' again",),
        "The retry returns the clone if all its files are there. An erase that goes on names the clone if it "
        "has rows that are to go; drop it then and erase it (--dropped).",
        "tests/sweep/test_clones.py::test_a_retry_waits_for_an_erase_that_may_not_have_seen_the_clone",
    ),
    Advice(
        ("Drop '{}', and clone the table again with another idempotency key",),
        "The new clone has the rows that the source has now. What the source has lost is in neither.",
        "tests/sweep/test_clones.py::test_a_clone_whose_files_went_is_not_the_answer_of_a_retry",
    ),
    Advice(
        ("is being erased: nothing can be restored until the erase has begun; try again",),
        "What is older than the erase stays refused; what is newer is restored.",
        "tests/erase/test_erase_delta.py::test_a_revert_is_refused_while_an_erase_is_about_to_begin",
    ),
    Advice(
        (
            "wait for it, or abort it: penstock tx abort {}",
            "delete the tag, or use --all-references, which makes '{}' unreadable at the tag",
            "it has changes of its own to the table; merge it and delete it, or delete it",
            "it has changes of its own from before that; merge it and delete it, or delete it",
        ),
        "Rows that were neither merged nor landed go with their branch or transaction; all other rows stay.",
        "tests/erase/test_erase_delta.py::test_following_the_advice_of_a_refusal_lets_the_erase_go_on",
    ),
    Advice(
        (
            "it has versions of its own; delete it (delete_table_branch of the Lance namespace)",
            "delete it (delete_table_tag of the Lance namespace); --all-references deletes it as well",
        ),
        "Versions that only Lance's own branch or tag had are removed; the rows of the table stay.",
        "tests/erase/test_erase_lance.py::test_following_the_advice_of_a_refusal_lets_the_erase_go_on",
    ),
    Advice(
        ("it still has the table; drop the table there as well, or delete the branch",),
        "The table leaves that branch, and the erase then removes all of it; other tables stay.",
        "tests/erase/test_erase_dropped.py::test_who_still_has_the_table_holds_it",
    ),
    Advice(
        ("it has files of this table; overwrite it with its own rows, and erase it first",),
        "The clone has its rows in its own files, and its history begins there.",
        "tests/erase/test_erase_lance.py"
        "::test_a_clone_that_has_files_of_the_table_holds_rows_until_it_is_written_anew",
    ),
    Advice(
        ("cannot be rebuilt here\n  Drop it, erase the table, and create the index again then.",),
        "The index is missing for a while; rows stay.",
        "tests/erase/test_erase_lance.py"
        "::test_an_index_that_cannot_be_made_anew_is_dropped_first_and_created_again",
    ),
    Advice(
        ("write its rows to a new table, and drop this one",),
        "The new table has the rows.",
        "tests/erase/test_erase_lance.py::test_a_table_in_the_oldest_file_format_is_written_to_a_new_one",
    ),
    Advice(
        ("Open the table again, and create the index on the version that it has now.",),
        "The index is built from the present rows.",
        "tests/erase/test_erase_lance.py"
        "::test_an_index_that_was_made_of_an_earlier_version_does_not_come_back",
    ),
    Advice(
        (
            "delete the branch, or use --all-references",
            "until the branch is rebased (penstock rebase {})",
        ),
        "The branch has the table as it is on the default branch; it had no rows of its own in it.",
        "tests/erase/test_erase_delta.py"
        "::test_references_without_changes_let_go_when_told_and_a_branch_gets_the_table_back_by_a_rebase",
    ),
)
ADVICE: Final[dict[str, tuple[Advice, ...]]] = {
    "To repeat something": REPEATING,
    "To settle a conflict": CONFLICTS,
    "To go back to an earlier state": RESTORING,
    "About Delta tables": DELTA,
    "About Lance tables": LANCE,
    "About tables of files": FILES,
    "About a lake as a whole": LAKES,
    "About transactions and expectations": WORK,
    "About erasing": ERASING,
}
