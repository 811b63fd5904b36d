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
            "Nothing was added; try again",
            "as many as it takes; try again shortly",
            "about to delete what is to be stored again; try again when it has ended",
            "was not ready after {} s; try again",
            "came and went all the time; try again",
            "came and went while it was to be declared; try again",
            "was changed by others all the time; try again",
            "is being adopted just now; try again",
            "it is not known yet whether that came about: try again",
            "it is not known yet whether that came about; try again",
            "another process is publishing the table at {}; try again",
            "another process is promoting the table at {}; try again",
            "is published up to version {} only, not {}; try again",
            "was not cancelled; try again",
        ),
        "Nothing was changed, so that it is done once.",
        "tests/advice/test_repeating.py::test_what_was_given_up_is_tried_again_and_done_once",
    ),
    Advice(
        (
            "it is not known whether {} of {} was written; try again",
            "it is not known whether {}/{} was written; try again",
            "it is not known whose the table at {} is; try again",
            "it could not be noted at {} that its files are to stay; try again",
        ),
        "What is at its place already is found there and stays; else it is put there. It is there once.",
        "tests/advice/test_repeating.py::test_a_lance_write_whose_answer_was_lost_is_tried_again_and_there_once",
    ),
    Advice(
        (
            "repeat it with the same idempotency key",
            "repeat the request with idempotency key",
            "Repeating the request with idempotency key {} is safe",
            "repeating the request is safe",
        ),
        "It is done once, whether it had been applied before or not.",
        "tests/server/test_limits.py::test_a_write_that_takes_too_long_may_still_be_applied",
    ),
    Advice(
        ("Write again with job_id='{}'",),
        "The job is done once: if it had landed, the answer is what came of it then.",
        "tests/spark/files/test_jobs.py"
        "::test_property_21_after_a_lost_answer_the_job_can_be_asked_for_again_by_its_id",
    ),
    Advice(
        (
            "To write it once more, give the job another id",
            "was tried {} times; give it another id",
            "'{}' was not written: give this job another",
        ),
        "It is a new job, and writes its rows. Nothing of the earlier one is undone: of what that had "
        "written, the message says what became.",
        "tests/advice/test_repeating.py::test_a_job_whose_id_is_another_requests_writes_under_a_new_one",
    ),
    Advice(
        (
            "was closed; open the lake anew",
            "was closed; open it anew",
            "was closed while this was under way; open it anew",
            "across a fork; open it anew in the child process",
            "could not be synced: {}. Open the lake anew",
        ),
        "A new handle reads what is stored. What was acknowledged is there.",
        "tests/advice/test_repeating.py::test_a_lake_that_was_closed_is_opened_anew_with_all_rows",
    ),
    Advice(
        (
            "Open the table again, and write on top of that",
            "Open it again, and write on top of that",
            "read version {} and repeat the work, or rebase it on what came first",
            "read the table again, and run the job again",
            "any more: read it again",
            "drop the feature, or repeat the work",
        ),
        "Nothing of the refused write is in the table. The rows are written on top of what others wrote, "
        "and nothing of theirs is lost.",
        "tests/formats/delta/test_conflict_advice.py"
        "::test_a_writer_that_was_overtaken_reads_again_and_repeats_its_work",
    ),
    Advice(
        ("does not hold what its size and SHA-256 say; write it anew", "swept any time; write them again"),
        "The files were in no commit yet, so that nobody has read them. They are written and committed once.",
        "tests/advice/test_files.py::test_files_that_waited_too_long_are_written_again",
    ),
    Advice(
        ("start the query again, with its checkpoint",),
        "The stream goes on after the last batch that it has read, and reads the new columns.",
        "tests/spark/without_session/test_stream_offsets.py"
        "::test_new_columns_end_the_stream_and_are_read_after_a_restart",
    ),
    Advice(
        ("run penstock init '{}' to migrate",),
        "The tables of the database get what this version needs. All that is stored stays.",
        "tests/stores/test_postgres.py::test_an_older_schema_is_migrated_by_init_once_and_by_nobody_else",
    ),
)
CONFLICTS: Final = (
    Advice(
        (
            "to take the target's, merge the table with the mode 'drop'",
            "keep the target's with the mode 'drop'",
            "leave the target's with the mode 'drop'",
            "keep this one with the mode 'drop'",
            "keep it with the mode 'drop'",
        ),
        "The target keeps its rows. Those of the source stay on its branch, and later merges of it do "
        "not bring them either: write them to the target if they are wanted there.",
        "tests/formats/delta/test_conflict_advice.py::test_the_advice_of_a_conflict_leads_out_of_it",
    ),
    Advice(
        (
            "to take one side, merge the table with the mode 'force' (the source's) or 'drop' (the target's)",
            "to take one side, merge it with the mode 'force' (the source's) or 'drop' (the target's)",
            "merge that with the mode 'force' or 'drop'",
            "take one side's with the mode 'force' or 'drop'",
            "take one side with the mode 'force' or 'drop'",
            "take one side, or write it again",
            "bring it back with the mode 'force', or leave it with 'drop'",
            "use the mode 'force' (the source's) or 'drop' (the target's)",
        ),
        "The table has the rows of the side that was taken. Those of the other side are no longer in it; "
        "the commits that wrote them stay in the history, where they can be read.",
        "tests/formats/files/test_conflict_advice.py::test_the_advice_of_a_conflict_leads_out_of_it",
    ),
    Advice(
        (
            "rebase the source onto the target without the table (mode 'drop'), then run the job again",
            "rebase the source onto the target without it and run the job again under a new id",
            "To redo it: penstock rebase {} --onto {}{}{}, then the job, under a new id",
        ),
        "What the branch did to the table is taken back there. Its old commits can be had back for half "
        "of the grace period; after that, only the job can bring it again. A job id or idempotency key "
        "that was used counts as done, so that it needs a new one. A stream does not send its batches "
        "again: take a side instead, or write their rows by hand.",
        "tests/advice/test_repeating.py::test_a_job_runs_again_after_a_rebase_under_a_new_id",
    ),
    Advice(
        (
            "or do again on the target what was done on the source",
            "merge the other way first, and then this way",
            "set them to the same values on both sides, and repeat this",
            "do it again, or as a transaction with the policy 'rebase'",
        ),
        "Both sides' rows are in the target.",
        "tests/advice/test_lance.py::test_both_sides_are_had_as_a_merge_advises",
    ),
    Advice(
        (
            "rename one of them",
            "rename one of the two",
        ),
        "Both tables are there, each under a name of its own, with all rows.",
        "tests/formats/delta/test_conflict_advice.py::test_the_advice_of_a_conflict_leads_out_of_it",
    ),
    Advice(
        ("drop or rename it here too", "To have the other one, drop this one first, and merge then"),
        "A table that is dropped goes from the branch, with the rows that it has there. Earlier commits "
        "have it; a revert of the drop brings it back.",
        "tests/advice/test_lance.py::test_a_table_that_made_way_for_another_comes_back_by_a_revert",
    ),
    Advice(
        (
            "write there again what the other side has written",
            "adopt the table again and append the rows that the other side has",
        ),
        "The table has all rows up to where it was handed back. What the other side has on top is "
        "written again; until then it is on its branch alone.",
        "tests/advice/test_delta.py::test_a_branch_from_before_a_table_was_handed_back_brings_its_rows_by_hand",
    ),
    Advice(
        (
            "bring the commits that changed the columns along",
            "bring fewer commits",
            "bring its later commits by a request of their own",
            "merge branches instead of transplanting",
        ),
        "All that is brought is there, by one merge or by several.",
        "tests/formats/delta/test_conflict_advice.py::test_the_advice_of_a_conflict_leads_out_of_it",
    ),
    Advice(
        (
            "undo what came after, the newest commit first; or undo all of it at once with the mode 'force'",
            "revert those first, the newest one first, or restore an earlier version of it",
            "undo the merge instead",
            "revert the commits instead",
            "Revert the commits that are not wanted, or merge those that are",
            "cannot be called back; 'penstock revert' undoes a commit",
        ),
        "What is undone goes from the table, by a new version. Its commits stay in the history, and a "
        "revert of the revert brings it back.",
        "tests/advice/test_lance.py::test_what_was_undone_as_advised_comes_back_by_undoing_that",
    ),
    Advice(
        (
            "merge the branch, or drop the table",
            "merge the branch instead",
            "merge that branch instead",
            "is not rebased; rebase others onto it",
        ),
        "The default branch keeps its versions and gets those of the other branch on top. A table that "
        "is dropped goes from it, and a revert brings it back.",
        "tests/advice/test_delta.py::test_a_default_branch_that_cannot_be_moved_gets_the_rows_by_a_merge",
    ),
)
DELTA: Final = (
    Advice(
        (
            "Stop that writer, copy the rows that only this file and later ones add",
            "move those files out of the log, publish again, and append the rows",
        ),
        "The log has what the lake ratified, and the other writer's rows on top. The files that were "
        "moved away are kept by who moved them.",
        "tests/lake/test_older_copies.py"
        "::test_a_commit_of_the_log_that_the_lake_does_not_know_is_put_aside_without_losing_rows",
    ),
    Advice(
        (
            "Bring the file back as it was",
            "try again; else bring the file back",
            "bring it back from a backup, or read a version without it",
            "Bring that file back, from a backup or an older version of the object, and publish again",
            "Bring it back, from a backup or from older versions of the objects, and publish again",
            "Bring the table's own log back and publish again",
        ),
        "Nothing is written before the file is what it was. Then every version is read and published as "
        "before.",
        "tests/advice/test_delta.py::test_what_was_taken_from_a_log_is_brought_back_and_all_is_published",
    ),
    Advice(
        (
            "If the table was deleted on purpose, drop it from the lake",
            "If the table was given up on purpose, drop it from the lake",
        ),
        "The table goes from the branch, as it has gone from storage. Versions of it that only the lake "
        "has can be read at earlier commits as long as their files are there.",
        "tests/advice/test_delta.py::test_a_table_that_was_deleted_on_purpose_is_dropped",
    ),
    Advice(
        ("Rename it, as in '….damaged'", "if not, bring it back from a backup"),
        "The table is read from its commits, with all rows; the file is kept under its new name. If "
        "commits are missing too, nothing is read before a backup brings them.",
        "tests/advice/test_delta.py::test_a_damaged_checkpoint_is_renamed_and_all_rows_are_read",
    ),
    Advice(
        ("Move it away, and write again",),
        "The file is put there with the right bytes, and all versions that need it are read.",
        "tests/formats/delta/test_composing.py"
        "::test_a_body_that_is_there_already_is_the_same_and_one_that_is_not_what_it_says_is_told",
    ),
    Advice(
        ("Revert the commit that dropped it",),
        "The table is back with all versions, published or not.",
        "tests/advice/test_delta.py::test_a_table_that_was_dropped_is_had_back_whole_by_a_revert",
    ),
    Advice(
        ("penstock delta recover",),
        "The lake owns the table as its log has it. Versions that the lost owner had not published are "
        "not in it; files that may be such are named.",
        "tests/formats/delta/test_recovery.py"
        "::test_versions_that_cannot_be_known_to_have_existed_are_named_one_by_one",
    ),
    Advice(
        ("drop it first: penstock delete {}", "still in the lake's history: append that afterwards"),
        "The lake owns the table as its log has it, and the rows that only the lake had are appended.",
        "tests/lake/test_older_copies.py::test_a_delta_table_is_taken_over_with_what_its_log_has",
    ),
    Advice(
        (
            "To try again on the table as it is now, ask again",
            "there is a Delta table already; adopt it: penstock delta adopt",
            "penstock delta adopt",
            "adopt it first",
            "commit to its log, or adopt it again",
            "Hand it back there first: penstock delta release",
            "Delete the key, then adopt the table: penstock delta adopt",
        ),
        "The lake decides the table's commits from its newest version on; every version stays. A key "
        "that is deleted for it had only pointed at the table.",
        "tests/advice/test_delta.py::test_a_table_goes_from_one_lake_to_another_with_all_rows",
    ),
    Advice(
        ("If nobody but this lake writes there, say so: --sole-writer",),
        "The lake writes without asking storage whether a file is there. Another writer at the same "
        "place could overwrite a version, and be overwritten: say so only if there is none.",
        "tests/formats/delta/test_conversion.py::test_storage_that_overwrites_needs_the_word_of_the_only_writer",
    ),
    Advice(
        (
            "copy its rows into a table of the lake",
            "Copy its rows into a table of the lake",
            "copy the other columns into a table of the lake",
        ),
        "A second table has the rows. The first one is not touched.",
        "tests/advice/test_delta.py::test_the_rows_of_an_invalid_table_are_copied",
    ),
    Advice(
        (
            "drop it with Delta Spark (ALTER TABLE … DROP FEATURE",
            "drop the constraints (ALTER TABLE … DROP CONSTRAINT",
            "drop the defaults (ALTER TABLE … ALTER COLUMN … DROP DEFAULT",
            "unset {} (ALTER TABLE … UNSET TBLPROPERTIES)",
        ),
        "Delta Spark writes a version without the feature; rows stay.",
        "tests/interop/test_delta_spark.py"
        "::test_what_a_refusal_advises_makes_the_table_one_that_can_be_adopted",
    ),
    Advice(
        ("let the table's files be written anew without their deleted rows",),
        "A new version has the rows that were not deleted, in other files.",
        "tests/spark/test_scans.py::test_more_deleted_rows_than_can_be_held_are_refused_with_a_way_out",
    ),
    Advice(
        ("remove that in the same commit",),
        "The commit names each file once; its rows are counted once.",
        "tests/advice/test_delta.py::test_a_file_gets_another_deletion_vector_in_one_commit",
    ),
    Advice(
        (
            "replace all its rows: mode='overwrite', overwrite_schema=True",
            "name partitions by other columns, or replace all of them",
            "or replace all files of this one",
        ),
        "The rows that were there go from the table, and those that are written are in it. Earlier "
        "versions have the old ones.",
        "tests/advice/test_files.py::test_what_was_replaced_as_advised_is_in_the_history",
    ),
    Advice(
        ("rename them", "Rename the column", "is not nullable; assign '{}' too"),
        "Nothing was written; the rows are written under other names, or with the value.",
        "tests/spark/test_update.py::test_values_whose_types_allow_nulls_are_taken_where_they_have_none",
    ),
)
LANCE: Final = (
    Advice(
        (
            "Stop that writer, copy the rows that only this and later manifests have",
            "move those files out of the folder, promote again, and append the rows",
        ),
        "The folder has what the lake ratified, and the other writer's rows on top. The files that were "
        "moved away are kept by who moved them.",
        "tests/advice/test_lance.py::test_a_manifest_that_the_lake_does_not_know_is_put_aside_without_losing_rows",
    ),
    Advice(
        ("deregister the table and register its folder",),
        "The lake takes over all versions that the folder has.",
        "tests/lake/test_older_copies.py::test_a_lance_table_is_taken_over_with_what_its_folder_has",
    ),
    Advice(
        ("register it there, and deregister it again",),
        "The other lake lets go of the table, whose versions all stay in its folder.",
        "tests/lance/test_namespace_owners.py"
        "::test_who_dies_before_letting_go_leaves_the_table_to_the_lake_which_can_register_it_again",
    ),
    Advice(
        ("create it here and do again on it what was done there, and delete it there only then",),
        "The branch of Lance's is there with its rows before the other one goes. The versions of that "
        "can be read at earlier commits of the source.",
        "tests/advice/test_lance.py::test_a_branch_of_lances_own_is_made_again_before_it_is_deleted",
    ),
    Advice(
        ("delete the tag there, or let it be at the newest version", "leads nowhere; delete it there"),
        "The name goes, and no version and no row with it.",
        "tests/advice/test_lance.py::test_a_tag_that_is_deleted_takes_no_row_along",
    ),
    Advice(
        (
            "Drop the index on this branch, and create it again",
            "drop the index there, and create it again",
            "drop them on the other side, and create them here later",
            "drop it there, and merge again",
        ),
        "An index goes, and can be made again from the rows, which stay.",
        "tests/advice/test_lance.py::test_an_index_that_is_in_the_way_is_dropped_and_made_again",
    ),
    Advice(
        ("a version cannot be undone; drop the table instead",),
        "The table goes from the branch, with the rows of its first version. A revert brings it back.",
        "tests/advice/test_lance.py::test_a_first_version_is_undone_by_dropping_the_table",
    ),
    Advice(
        ("Write it anew with Lance, and register that",),
        "A second table has the rows. The first one is not touched.",
        "tests/advice/test_lance.py::test_a_table_of_the_oldest_format_is_written_anew",
    ),
    Advice(
        ("Bring it back from a backup", "Restore what is missing from a backup of"),
        "The version is read again, with all rows. A restore of an earlier one is a new version, and "
        "takes no other one away.",
        "tests/advice/test_lance.py::test_a_file_that_is_brought_back_makes_its_version_readable",
    ),
    Advice(
        ("restore a version of it that can be read; if none can, drop the table there, and create it anew",),
        "A restored version is the newest one again, with its rows. A table that is dropped is given up "
        "on that branch; versions of it that can be read stay in the history.",
        "tests/advice/test_lance.py"
        "::test_a_version_that_can_be_read_is_restored_where_the_newest_has_lost_a_file",
    ),
    Advice(
        ("write_dataset with the mode 'overwrite'",),
        "A table without a version gets its first one; there is nothing that could be overwritten.",
        "tests/advice/test_lance.py::test_a_declared_table_gets_its_first_rows",
    ),
    Advice(
        ("drop that by itself first", "Delete what is in it first", "use 'penstock delete {}'"),
        "What is deleted goes from the branch, and a revert brings it back.",
        "tests/advice/test_lance.py::test_a_namespace_is_emptied_and_a_revert_brings_all_back",
    ),
)
FILES: Final = (
    Advice(
        ("copy it, then remove it",),
        "The file is in the other table before it goes from this one.",
        "tests/advice/test_files.py::test_a_file_is_copied_to_another_table_and_removed_then",
    ),
    Advice(
        ("write it again under its path",),
        "The file gets another name in storage, at the same path of the table.",
        "tests/spark/files_read/test_reading_files.py"
        "::test_a_file_that_lies_under_a_name_that_spark_passes_over_is_refused",
    ),
    Advice(
        ("Create that one anew with the",),
        "The table of Spark's catalogue only points at the lake, where the rows stay.",
        "tests/spark/files_session/test_mapped_reads.py::test_partitions_are_those_of_the_lake",
    ),
)
LAKES: Final = (
    Advice(
        ("until 'penstock copy SOURCE --cancel' lets it stay",),
        "The lake stays at the source, which has everything.",
        "tests/cli/test_copy.py::test_a_move_can_be_cancelled_until_it_is_complete",
    ),
    Advice(
        (
            "Run the same copy again",
            "run the same copy again; if that does not help, cancel it",
            "complete that, or take another place",
            "the same 'penstock copy', run again, completes it",
        ),
        "The source has everything until the copy has been compared with it. A copy that is cancelled "
        "leaves the source as it was.",
        "tests/advice/test_copies.py::test_a_copy_that_was_killed_is_run_again_and_has_all_rows",
    ),
    Advice(
        ("take another place, or delete that part first: the database there, and no files of tables",),
        "What is deleted is part of a copy that nobody could write to. The lake and its tables are where "
        "they were.",
        "tests/advice/test_copies.py::test_a_cancelled_copy_is_deleted_and_begun_anew",
    ),
    Advice(
        ("Restore the lake's database from a backup", "restore its database from a backup"),
        "The lake is what it was when the backup was made. What was committed since is not in it; tables "
        "whose logs and folders have it say so, and can be taken over with it. Files of the old database "
        "that lie beside it (`penstock.db-wal`, `penstock.db-shm`) are moved away first.",
        "tests/advice/test_copies.py::test_a_lake_whose_database_is_damaged_comes_back_from_a_backup",
    ),
    Advice(
        ("put it back", "If what is there now was put there on purpose, open the lake anew"),
        "The lake goes on with the file that it had. Opened anew, it has what the new file has, and no more.",
        "tests/advice/test_copies.py::test_a_database_that_was_moved_away_is_put_back_with_all_rows",
    ),
    Advice(
        (
            "Copy the directory, while nobody writes to it, to where this process may write",
            "for several processes, copy the lake to a store that they can share",
        ),
        "There is a second lake with all that the first one had; the first one is not touched, or has moved.",
        "tests/advice/test_copies.py::test_a_directory_of_rocksdb_is_copied_and_read",
    ),
    Advice(
        (
            "let that history expire, which nobody can read then: penstock horizon",
            "Bring the log back from a backup",
        ),
        "Commits before the horizon are given up. Branches and tags keep what they have.",
        "tests/advice/test_horizons.py::test_history_that_cannot_be_read_expires_and_branches_stay",
    ),
    Advice(
        (
            "Drop the table that should not be there",
            "no kept commit has the table any more: penstock horizon",
        ),
        "The table goes from the branch, and with the history what only it has. What the other table has "
        "stays.",
        "tests/advice/test_horizons.py::test_a_table_inside_of_another_is_dropped_and_the_other_one_stays",
    ),
    Advice(
        (
            "less can be given: penstock sweep --nobody-writes",
            "'penstock sweep' removes their objects when they are old enough",
            "'penstock sweep' removes only what no kept commit names",
            "'penstock sweep --remove-data' removes data files",
            "are left to 'penstock sweep --remove-data'",
            "penstock sweep removes the tag when none has it any more",
        ),
        "What no kept commit needs is removed. With less than the lake's own grace period, files of a "
        "write that is not committed yet may go: so only while nobody writes.",
        "tests/advice/test_horizons.py::test_a_sweep_takes_nothing_that_a_kept_commit_has",
    ),
    Advice(
        ("say where to: penstock copy SOURCE TARGET",),
        "The lake moves to an empty place; the source can be read, and takes no more writes.",
        "tests/advice/test_copies.py::test_a_copy_that_was_killed_is_run_again_and_has_all_rows",
    ),
)
WORK: Final = (
    Advice(
        ("nothing of it has landed: run again what wrote in it",),
        "The rows of the transaction are written by a new one. Nothing of the old one was ever seen.",
        "tests/advice/test_transactions.py::test_a_transaction_that_was_aborted_is_run_again",
    ),
    Advice(
        (
            "'penstock tx commit {id}' finishes",
            "'penstock tx commit ID' finishes it",
            "'penstock tx commit {}' finishes it",
        ),
        "It lands once, as often as it is asked for.",
        "tests/cli/test_tx.py::test_one_is_committed_by_hand_as_often_as_wanted",
    ),
    Advice(
        ("'penstock tx abort {id}' ends it without that", "abort it with 'penstock tx abort {id}'"),
        "It ends without having landed, and its rows go. If it had landed already, that is the answer, "
        "and they stay.",
        "tests/transactions/test_stuck.py"
        "::test_what_keeps_it_from_landing_is_mended_or_it_is_aborted_after_a_while",
    ),
    Advice(
        (
            "Remove one, or make one query of several",
            "have it read less, or remove it and ask when a branch is published",
            "remove the expectation first",
        ),
        "A rule goes that rows are held to; rows stay.",
        "tests/advice/test_transactions.py::test_an_expectation_that_is_removed_takes_no_row_along",
    ),
)
ADVICE: Final[dict[str, tuple[Advice, ...]]] = {
    "To repeat something": REPEATING,
    "To settle a conflict": CONFLICTS,
    "About Delta tables": DELTA,
    "About Lance tables": LANCE,
    "About tables of files": FILES,
    "About a lake as a whole": LAKES,
    "About transactions and expectations": WORK,
}
