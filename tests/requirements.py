"""The ledger: what is promised, where that was said, and the tests that prove it.

A key is `area:what`; the source is the issue, a section of the reference or of the design. A test
is named by its file below `tests/` and its function; `test_requirements.py` checks both ways.
"""

from __future__ import annotations

from typing import NamedTuple


class Requirement(NamedTuple):
    """One promised behaviour."""

    source: str
    behaviour: str
    tests: tuple[str, ...]


def _of(source: str, behaviour: str, file: str, *names: str) -> Requirement:
    return Requirement(source, behaviour, tuple(f"{file}.py::test_{name}" for name in names))


_SESSIONS = "contract/test_sessions"
_TITLES = "contract/test_titles"
_MESSAGES = "contract/test_messages"
_WINDOWS = "contract/test_windows"
_LINEAGE = "contract/test_lineage"
_LISTS = "contract/test_lists"
_USAGE = "contract/test_usage"
_SEARCH = "contract/test_search"
_UPKEEP = "contract/test_upkeep"
_FEED = "contract/test_feed"
_RECENCY = "contract/test_recency"
_TRANSACTIONS = "contract/test_transactions"

REQUIREMENTS = {
    # -- the project -------------------------------------------------------------------------
    "project:driver": _of(
        "issue 2; design 3",
        "One file decides on the SQLite library, before the first connection; it can be asked.",
        "test_driver",
        "no_other_file_imports_a_sqlite_library",
        "afterwards_the_choice_is_fixed",
        "what_was_decided_can_be_asked",
    ),
    "project:names": _of(
        "style 3",
        "The public names are said in one place, and importing them does nothing.",
        "test_public_names",
        "the_public_names_are_all_that_is_public",
        "importing_loads_nothing_heavy",
        "importing_opens_no_file_but_code",
    ),
    "project:async": _of(
        "issue 2; design 2",
        "The async face is every method of the contract, over worker threads.",
        "test_async",
        "every_method_of_the_contract_is_there_with_its_signature",
        "a_cancelled_call_is_finished_all_the_same",
        "a_call_does_not_block_the_loop",
    ),
    # -- sessions ----------------------------------------------------------------------------
    "sessions:create": _of(
        "hermes 3.8",
        "A second create fills what is empty; source, user and start never change.",
        _SESSIONS,
        "a_second_create_fills_what_is_empty_and_changes_nothing_else",
        "a_second_create_never_sets_a_user",
    ),
    "sessions:lazy": _of(
        "issue 2; design 7",
        "Nothing is stored before the first message.",
        _SESSIONS,
        "the_first_message_creates_its_session_in_the_same_step",
        "a_message_that_is_refused_creates_no_session",
        "no_messages_create_no_session",
    ),
    "sessions:mapping": _of(
        "design 2", "Rows read as mappings.", _SESSIONS, "a_created_session_reads_as_a_mapping"
    ),
    "sessions:end": _of(
        "hermes 3.8",
        "The first end reason wins, and none at all is possible.",
        _SESSIONS,
        "the_first_end_reason_wins",
        "a_session_may_end_without_a_reason",
    ),
    "sessions:reopen": _of(
        "hermes 3.8", "Reopening forgets the end.", _SESSIONS, "reopening_forgets_the_end"
    ),
    "sessions:promote": _of(
        "hermes 3.8",
        "A reset ends what lives or was only closed by its agent.",
        _SESSIONS,
        "a_reset_promotes_only_what_lives_or_was_closed_by_its_agent",
    ),
    "sessions:archive": _of(
        "hermes 3.7",
        "Archiving reaches the whole lineage, both ways.",
        _SESSIONS,
        "archiving_reaches_the_whole_lineage_both_ways",
    ),
    "sessions:peer": _of(
        "hermes 3.8",
        "Peer fields are overwritten, name and origin only where they are given.",
        _SESSIONS,
        "a_peer_is_overwritten_but_a_name_only_where_it_is_given",
    ),
    "sessions:expiry": _of(
        "issue 2",
        "Expiry is noted, where the home has a column for it.",
        _SESSIONS,
        "expiry_is_noted_where_there_is_a_column",
    ),
    "sessions:unknown": _of(
        "issue 2; design 10",
        "An unknown id is not found, its nearest are named, and nothing changes.",
        _SESSIONS,
        "an_unknown_session_is_not_found_and_its_nearest_are_named",
    ),
    "sessions:looking": _of(
        "design 4",
        "Columns are found by looking, never assumed from a version.",
        _SESSIONS,
        "a_column_that_this_home_has_not_is_unsupported",
    ),
    "sessions:invalid": _of(
        "issue 2",
        "Input that makes no sense has its own error and changes nothing.",
        _SESSIONS,
        "fields_that_make_no_sense_are_invalid",
        "an_id_that_cannot_be_one_is_invalid",
    ),
    # -- titles ------------------------------------------------------------------------------
    "titles:cleaning": _of(
        "hermes 3.9", "Titles are cleaned as the reference says.", _TITLES, "a_title_is_cleaned"
    ),
    "titles:length": _of(
        "hermes 3.9",
        "100 characters after cleaning, more is a ValueError.",
        _TITLES,
        "a_title_of_101_characters_is_too_long",
    ),
    "titles:unique": _of(
        "hermes 3.9",
        "A title is unique, also against archived sessions; the error names the holder.",
        _TITLES,
        "a_title_is_unique_also_against_archived_sessions",
        "a_title_is_compared_exactly",
    ),
    "titles:moving": _of(
        "hermes 3.9",
        "A title moves from an ancestor of the conversation.",
        _TITLES,
        "a_title_moves_from_an_ancestor_of_the_conversation",
        "a_title_moves_not_from_a_descendant_nor_to_a_branch",
    ),
    "titles:next": _of(
        "hermes 3.9",
        "The next title of a lineage is numbered, and free.",
        _TITLES,
        "the_next_title_of_a_lineage_is_numbered",
        "the_next_title_is_free_even_where_it_had_to_be_cut",
    ),
    "titles:resolve": _of(
        "hermes 3.9",
        "A title resolves to the newest of its lineage, else to the one that has it.",
        _TITLES,
        "a_title_resolves_to_the_newest_of_its_lineage",
    ),
    # -- usage -------------------------------------------------------------------------------
    "usage:totals": _of(
        "hermes 3.8",
        "Tokens and costs are added, or set.",
        _USAGE,
        "counts_are_added",
        "absolute_counts_are_set_and_make_no_row",
    ),
    "usage:models": _of(
        "hermes 3.8",
        "Each model and task has its row.",
        _USAGE,
        "each_model_has_its_own_row",
        "calls_beside_the_conversation_count_for_their_task_only",
    ),
    "usage:route": _of(
        "hermes 3.8",
        "The first accounted call may replace the requested model, later ones fill gaps.",
        _USAGE,
        "the_first_call_may_replace_the_requested_route",
    ),
    # -- messages ----------------------------------------------------------------------------
    "messages:content": _of(
        "hermes 3.6",
        "Text, parts, bytes and numbers read as they were given.",
        _MESSAGES,
        "content_reads_as_it_was_given",
        "half_characters_inside_parts_break_nothing_later",
    ),
    "messages:columns": _of(
        "hermes 3.6",
        "Every column is kept; empty reasoning is not none; an unknown column is invalid.",
        _MESSAGES,
        "every_column_reads_as_it_was_given",
        "empty_reasoning_is_not_no_reasoning",
        "a_message_that_makes_no_sense_is_invalid_and_changes_nothing",
    ),
    "messages:counters": _of(
        "hermes 3.8",
        "Counters count messages of all roles and calls of tools.",
        _MESSAGES,
        "an_append_is_its_id_with_the_revisions",
        "rows_of_any_role_are_kept",
    ),
    "messages:order": _of(
        "design 5",
        "The order of messages is that of their ids, whatever their times say.",
        _MESSAGES,
        "rows_are_read_in_order_of_ids_and_in_parts",
    ),
    "messages:flags": _of(
        "hermes 3.7",
        "Flags are those of the table, and never (1, 1).",
        _MESSAGES,
        "a_rewind_takes_back_a_message_and_all_after_it",
        "a_compaction_flags_live_rows_and_appends_in_their_place",
        "a_restore_after_a_compaction_leaves_compacted_rows_compacted",
    ),
    "messages:replace": _of(
        "hermes 3.7",
        "Replacing deletes all rows or the live ones; clearing deletes them all.",
        _MESSAGES,
        "replacing_deletes_every_row",
        "replacing_live_rows_keeps_the_others",
        "clearing_deletes_every_row",
    ),
    "messages:revision": _of(
        "design 5",
        "Every kind of change changes the revision, and an append chain is continuous.",
        _MESSAGES,
        "every_kind_of_change_changes_the_revision",
        "an_append_chain_is_continuous_across_instances",
        "a_revision_sees_rows_of_strangers",
    ),
    "messages:expect": _of(
        "design 5",
        "An append that expects another revision is a conflict.",
        _MESSAGES,
        "an_append_after_a_foreign_change_is_a_conflict",
    ),
    "messages:platform": _of(
        "hermes 3.6",
        "A message of a platform is known again by its id.",
        _MESSAGES,
        "a_platform_message_is_known_again",
    ),
    # -- windows -----------------------------------------------------------------------------
    "windows:edges": _of(
        "issue 2",
        "Windows before, after and around a message, with whether there is more.",
        _WINDOWS,
        "before_excludes_its_edge",
        "after_excludes_its_edge",
        "around_has_its_center_and_both_sides",
    ),
    "windows:view": _of(
        "design 5",
        "A full view merges compacted messages; rewound ones are in neither.",
        _WINDOWS,
        "a_full_view_merges_compacted_messages_in_order",
        "rewound_messages_are_in_no_window",
    ),
    "windows:walk": _of(
        "issue 2",
        "A walk through the pages is complete, also while another appends.",
        _WINDOWS,
        "a_walk_through_the_pages_is_complete",
        "a_walk_is_complete_while_another_appends",
    ),
    "windows:conversation": _of(
        "hermes 3.6",
        "The conversation form is what a model is sent; ancestors are continuations only.",
        _WINDOWS,
        "a_conversation_is_what_a_model_is_sent",
        "a_conversation_reaches_back_along_continuations_only",
    ),
    # -- lineage -----------------------------------------------------------------------------
    "lineage:kinds": _of(
        "hermes 3.10",
        "Continuation, branch and delegate are told apart.",
        _LINEAGE,
        "a_link_is_told_by_its_parents_end_and_its_marks",
    ),
    "lineage:tip": _of(
        "hermes 3.10",
        "The tip goes by the rule of preference, however long the chain.",
        _LINEAGE,
        "of_several_continuations_the_tip_is",
        "a_chain_of_120_has_one_root_and_one_tip",
    ),
    "lineage:damage": _of(
        "hermes 3.10; 14",
        "Cycles and broken links are survived, and no conversation vanishes.",
        _LINEAGE,
        "a_cycle_of_parents_is_survived",
        "a_link_to_a_session_that_is_gone_is_an_end",
    ),
    # -- lists -------------------------------------------------------------------------------
    "lists:lines": _of(
        "hermes 3.10; issue 2",
        "A list shows one line a conversation: the tip with the start of its root.",
        _LISTS,
        "a_conversation_is_one_line",
        "a_line_says_what_a_conversation_is",
        "the_start_of_a_conversation_orders_it",
    ),
    "lists:filters": _of(
        "hermes 3.11; 3.12",
        "Every filter of the reference selects, and is taken literally.",
        _LISTS,
        "a_filter_selects_and_is_taken_literally",
    ),
    "lists:cursors": _of(
        "issue 2; design 5",
        "Pages are complete and stable; a cursor of another list is invalid.",
        _LISTS,
        "an_order_is_walked_page_by_page",
        "a_walk_is_complete_and_shows_none_twice_while_others_write",
        "a_cursor_of_another_list_is_invalid",
    ),
    "lists:stale": _of(
        "design 1",
        "Nothing is stale: what is committed is what is listed.",
        _RECENCY,
        "the_list_is_what_a_look_at_every_session_would_say",
        "a_session_that_was_put_back_is_listed_again",
        "a_change_of_anything_on_a_line_shows_at_once",
    ),
    "lists:preview": _of(
        "hermes 3.10",
        "The preview is what the user said first, of parts too.",
        _LISTS,
        "the_preview_is_the_beginning_of_what_the_user_said_first",
    ),
    # -- transactions ------------------------------------------------------------------------
    "transactions:whole": _of(
        "issue 2",
        "A transaction is whole or not at all, also inside another.",
        _TRANSACTIONS,
        "an_error_undoes_all_of_a_transaction",
        "an_inner_transaction_is_undone_alone",
        "revisions_are_right_after_a_rollback",
    ),
    "transactions:threads": _of(
        "issue 2",
        "Of many writers, in one instance or two, nothing is lost and counters are right.",
        _TRANSACTIONS,
        "of_many_writers_to_one_session_nothing_is_lost",
        "a_mistake_of_one_thread_takes_nothing_from_the_others",
    ),
    "transactions:close": _of(
        "issue 2",
        "What was acknowledged before a close is there; afterwards every call says so.",
        _TRANSACTIONS,
        "what_was_acknowledged_before_a_close_is_there",
        "a_closed_database_says_so",
    ),
    "transactions:fork": _of(
        "reliability 1.3",
        "What was opened before a fork is not used after it.",
        _TRANSACTIONS,
        "a_fork_may_not_use_what_was_opened_before_it",
    ),
    "machine:any": _of(
        "issue 2, proof",
        "After any course of steps, reopened and killed, everything is as the model says.",
        "contract/test_machine",
        "any_course_of_steps_leaves_what_the_model_says",
    ),
    # -- search ------------------------------------------------------------------------------
    "search:queries": _of(
        "issue 2",
        "Words, phrases, prefixes, operators, identifiers and every script are found.",
        _SEARCH,
        "a_query_finds_the_text",
        "a_substring_is_found_wherever_it_is",
    ),
    "search:parts": _of(
        "hermes 3.4",
        "Content in parts is found by what it says, not by how it is stored.",
        _SEARCH,
        "multi_part_content_is_found_by_what_it_says",
        "how_content_is_stored_is_not_found",
    ),
    "search:questions": _of(
        "design 5",
        "All words, then prefixes, then any.",
        _SEARCH,
        "all_words_come_before_prefixes_and_prefixes_before_any",
        "a_question_finds_its_answer_in_other_words",
    ),
    "search:flags": _of(
        "design 5",
        "Rewound rows are never found, compacted ones once.",
        _SEARCH,
        "rewound_messages_are_never_found",
        "compacted_messages_are_found_once",
    ),
    "search:syntax": _of(
        "issue 2",
        "Bad syntax is searched as text, never an error.",
        _SEARCH,
        "bad_syntax_is_searched_as_text",
        "nothing_that_can_be_typed_is_an_error",
    ),
    "search:filters": _of(
        "issue 2",
        "Filters by source, project, role, time and session.",
        _SEARCH,
        "search_is_filtered_by_source_role_time_and_session",
        "search_is_filtered_by_project",
    ),
    "search:pages": _of(
        "issue 2", "Pages hold every hit once.", _SEARCH, "pages_hold_every_hit_once"
    ),
    # -- upkeep ------------------------------------------------------------------------------
    "upkeep:orphans": _of(
        "hermes 3.11",
        "Orphaned continuations are ended by the selection of the reference.",
        _UPKEEP,
        "an_orphaned_continuation_is_ended_once",
        "what_is_no_orphan_is_left_open",
    ),
    "upkeep:ghosts": _of(
        "hermes 3.11",
        "Empty ghosts are deleted; one with a child is left out and blocks no other.",
        _UPKEEP,
        "a_ghost_with_a_child_is_left_out_and_blocks_no_other",
        "what_is_no_ghost_is_kept",
    ),
    "upkeep:delete": _of(
        "hermes 3.11",
        "A session goes with its messages and delegates, other children stay.",
        _UPKEEP,
        "a_deleted_session_is_gone_with_its_messages",
        "delegates_go_with_their_session_and_so_do_theirs",
        "other_children_lose_their_parent",
    ),
    "upkeep:recount": _of(
        "issue 2", "Counters are recomputed from rows.", _UPKEEP, "a_recount_says_what_the_rows_say"
    ),
    "upkeep:checks": _of(
        "issue 2",
        "Integrity and sizes are told.",
        _UPKEEP,
        "a_sound_database_has_no_findings",
        "sizes_are_estimated_at_once_and_counted_on_demand",
    ),
    # -- the feed ----------------------------------------------------------------------------
    "feed:start": _of(
        "issue 2",
        "Without a cursor it starts now: no replay of history.",
        _FEED,
        "without_a_cursor_it_starts_now_and_replays_nothing",
    ),
    "feed:cursor": _of(
        "issue 2", "A cursor survives a restart.", _FEED, "a_cursor_survives_a_restart"
    ),
    "feed:copies": _of(
        "issue 2",
        "Copies that a compaction carried are not new.",
        _FEED,
        "copies_that_a_compaction_carried_are_not_reported",
    ),
    "feed:waiting": _of(
        "design 12",
        "Waiting ends with the commit of anybody.",
        _FEED,
        "waiting_ends_with_a_commit_of_another_instance",
    ),
    # -- beside Hermes -----------------------------------------------------------------------
    "interop:reads": _of(
        "issue 2, proof",
        "Every row, title, tip and list agrees with its own answer or a named correction.",
        "interop/test_hermes_reads",
        "every_session_row_reads_as_theirs",
        "every_message_row_reads_as_theirs",
        "the_list_has_their_lines",
    ),
    "interop:writes": _of(
        "issue 2, proof",
        "What we write it reads, finds and goes on with.",
        "interop/test_hermes_writes",
        "they_read_and_find_what_we_wrote",
        "they_go_on_where_we_stopped",
    ),
    "interop:search": _of(
        "issue 2, proof",
        "Search finds what its own finds, rewound rows excepted.",
        "interop/test_hermes_search",
        "words_phrases_prefixes_and_operators_find_what_theirs_find",
    ),
    "interop:filters": _of(
        "hermes 3.11",
        "Each filter selects what its own selects.",
        "interop/test_hermes_filters",
        "each_filter_selects_what_theirs_selects",
    ),
    "interop:upkeep": _of(
        "hermes 3.11",
        "Upkeep selects what its own selects, or the named correction.",
        "interop/test_hermes_upkeep",
        "orphaned_continuations_are_finalized_as_theirs",
    ),
    "interop:beside": _of(
        "issue 2, proof",
        "Two processes append to one session: nothing lost; reading changes nothing.",
        "interop/test_hermes_beside",
        "two_processes_append_to_one_session_and_nothing_is_lost",
        "reading_changes_nothing",
    ),
    "interop:hours": _of(
        "issue 2, proof",
        "After many random calls on twin homes both are equal.",
        "interop/test_hermes_hours",
        "after_a_random_hour_both_homes_are_equal",
    ),
    "interop:schemas": _of(
        "issue 2",
        "Schemas 16 to 30: built as the packages build them, or from the reference.",
        "interop/test_hermes_schemas",
        "our_builder_makes_what_the_package_makes",
    ),
    "interop:newer": _of(
        "hermes 11",
        "Newer schemas are read and written, and what we do not know is kept.",
        "interop/test_newer_schemas",
        "every_kind_of_write_keeps_the_file_and_what_we_do_not_know",
    ),
    # -- faults ------------------------------------------------------------------------------
    "faults:kill": _of(
        "issue 2, proof",
        "No acknowledged row is lost to a kill.",
        "faults/test_kills",
        "no_acknowledged_row_is_lost_to_a_kill",
    ),
    "faults:sweep": _of(
        "issue 2, proof",
        "An error at the nth write or fsync leaves the state before or after.",
        "faults/test_sweep",
        "a_fault_leaves_the_state_before_or_after",
    ),
    "faults:full": _of(
        "issue 2, proof",
        "A full disk refuses, and goes on with room.",
        "faults/test_full_disk",
        "a_full_disk_refuses_and_goes_on_with_room",
    ),
    "faults:locks": _of(
        "issue 2, proof; design 4",
        "Nothing of ours loses a commit of a holder whose locks were dropped.",
        "faults/test_lost_locks",
        "nothing_of_ours_loses_a_commit_of_a_holder",
    ),
    "faults:own-locks": _of(
        "reliability 1.3",
        "No public call drops a lock of this process.",
        "faults/test_file_locks",
        "the_locks_of_this_process_are_the_same_before_and_after_each_call",
    ),
    "faults:busy": _of(
        "issue 2",
        "A held write lock is waited for, then Busy says who to ask.",
        "faults/test_write_lock",
        "a_write_waits_until_the_lock_is_given_back",
        "an_impatient_write_says_who_holds_the_lock_and_changes_nothing",
    ),
    "faults:files": _of(
        "issue 2",
        "A truncated or encrypted file, a directory, an old schema: refused and left as it is.",
        "faults/test_bad_files",
        "a_bad_file_is_refused_and_left_as_it_is",
    ),
    "faults:permissions": _of(
        "issue 2, proof",
        "What may not be read or written is denied; a read-only mount is read.",
        "faults/test_permissions",
        "a_file_that_may_not_be_read_is_denied",
        "a_mount_that_nobody_can_write_is_read_as_one_that_cannot_change",
    ),
    "faults:threads": _of(
        "reliability 1.4",
        "An interrupted caller stops nobody else.",
        "faults/test_threads",
        "a_caller_that_is_interrupted_while_it_waits_stops_nobody_else",
    ),
}
