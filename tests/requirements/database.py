"""What a state database does beside: lists, search, upkeep, its feed, compaction."""

from __future__ import annotations

from tests.requirements.entry import of

_COMPACTION = "contract/test_compaction"
_LISTS = "contract/test_lists"
_SEARCH = "contract/test_search"
_UPKEEP = "contract/test_upkeep"
_FEED = "contract/test_feed"
_RECENCY = "contract/test_recency"
_TRANSACTIONS = "contract/test_transactions"

REQUIREMENTS = {
    # -- lists -------------------------------------------------------------------------------
    "lists:lines": of(
        "hermes 3.10; issue 2",
        "A list shows one line a conversation: the tip with the start of its root.",
        _LISTS,
        "a_conversation_is_one_line",
        "a_line_says_what_a_conversation_is",
        "the_start_of_a_conversation_orders_it",
    ),
    "lists:filters": of(
        "hermes 3.11; 3.12",
        "Every filter of the reference selects, and is taken literally.",
        _LISTS,
        "a_filter_selects_and_is_taken_literally",
        "a_list_is_of_what_began_then_as_its_lines_say",
    ),
    "lists:cursors": of(
        "issue 2; design 5",
        "Pages are complete and stable; a cursor of another list is invalid.",
        _LISTS,
        "an_order_is_walked_page_by_page",
        "a_walk_is_complete_and_shows_none_twice_while_others_write",
        "a_cursor_of_another_list_is_invalid",
    ),
    "lists:stale": of(
        "design 1",
        "Nothing is stale: what is committed is what is listed.",
        _RECENCY,
        "the_list_is_what_a_look_at_every_session_would_say",
        "a_session_that_was_put_back_is_listed_again",
        "a_change_of_anything_on_a_line_shows_at_once",
    ),
    "lists:preview": of(
        "hermes 3.10; design 5",
        "The preview is what the user said first, of parts too, whatever the times say.",
        _LISTS,
        "the_preview_is_the_beginning_of_what_the_user_said_first",
        "the_preview_is_of_the_message_that_was_stored_first_whatever_its_time",
    ),
    "lists:damage": of(
        "design 5; hermes 14",
        "A row with values that no careful writer leaves hides nothing of the others.",
        "state/test_damaged_rows",
        "a_damaged_row_hides_nothing",
        "a_session_is_as_active_as_the_last_of_its_times_that_are_times",
    ),
    # -- transactions ------------------------------------------------------------------------
    "transactions:whole": of(
        "issue 2",
        "A transaction is whole or not at all, also inside another.",
        _TRANSACTIONS,
        "an_error_undoes_all_of_a_transaction",
        "an_inner_transaction_is_undone_alone",
        "revisions_are_right_after_a_rollback",
    ),
    "transactions:threads": of(
        "issue 2",
        "Of many writers, in one instance or two, nothing is lost and counters are right.",
        _TRANSACTIONS,
        "of_many_writers_to_one_session_nothing_is_lost",
        "a_mistake_of_one_thread_takes_nothing_from_the_others",
    ),
    "transactions:tasks": of(
        "issue 16; design 8",
        "A transaction belongs to one task; other tasks of its thread are refused at once.",
        "contract/test_tasks",
        "change_of_another_task_is_refused",
        "transaction_of_another_task_is_refused",
        "another_task_reads_committed_rows",
        "change_in_another_thread_waits",
    ),
    "transactions:close": of(
        "issue 2",
        "What was acknowledged before a close is there; afterwards every call says so.",
        _TRANSACTIONS,
        "what_was_acknowledged_before_a_close_is_there",
        "a_closed_database_says_so",
    ),
    "transactions:fork": of(
        "reliability 1.3",
        "What was opened before a fork is not used after it.",
        _TRANSACTIONS,
        "a_fork_may_not_use_what_was_opened_before_it",
    ),
    "machine:any": of(
        "issue 2, proof",
        "After any course of steps, reopened and killed, everything is as the model says.",
        "contract/test_machine",
        "any_course_of_steps_leaves_what_the_model_says",
    ),
    # -- search ------------------------------------------------------------------------------
    "search:queries": of(
        "issue 2",
        "Words, phrases, prefixes, operators, identifiers and every script are found.",
        _SEARCH,
        "a_query_finds_the_text",
        "a_substring_is_found_wherever_it_is",
    ),
    "search:parts": of(
        "hermes 3.4",
        "Content in parts is found by what it says, not by how it is stored.",
        _SEARCH,
        "multi_part_content_is_found_by_what_it_says",
        "how_content_is_stored_is_not_found",
    ),
    "search:questions": of(
        "design 5",
        "All words, then prefixes, then any.",
        _SEARCH,
        "all_words_come_before_prefixes_and_prefixes_before_any",
        "a_question_finds_its_answer_in_other_words",
    ),
    "search:flags": of(
        "design 5",
        "Rewound rows are never found, compacted ones once.",
        _SEARCH,
        "rewound_messages_are_never_found",
        "compacted_messages_are_found_once",
    ),
    "search:syntax": of(
        "issue 2",
        "Bad syntax is searched as text, never an error.",
        _SEARCH,
        "bad_syntax_is_searched_as_text",
        "nothing_that_can_be_typed_is_an_error",
    ),
    "search:filters": of(
        "issue 2",
        "Filters by source, project, role, time and session.",
        _SEARCH,
        "search_is_filtered_by_source_role_time_and_session",
        "search_is_filtered_by_project",
    ),
    "search:pages": of(
        "issue 2",
        "Pages hold every hit once; a cursor is valid for equal filters, whatever their order.",
        _SEARCH,
        "pages_hold_every_hit_once",
        "a_cursor_is_valid_for_the_same_filters_in_another_order",
        "a_message_of_any_id_is_found_on_every_page",
    ),
    "search:calls": of(
        "hermes 3.4",
        "A tool call is found by its name, its arguments and its ids, which no snippet shows.",
        "contract/test_search_calls",
        "a_tool_call_is_found_by_its_name_and_its_arguments",
        "a_tool_call_is_found_by_its_ids_which_are_not_shown",
        "a_piece_of_the_id_of_a_tool_call_is_found",
    ),
    "search:layouts": of(
        "issue 2; hermes 11",
        "What an index of Hermes hides or leaves out is found in every schema.",
        "state/test_search_hermes",
        "what_a_tool_said_is_found",
        "encoded_text_is_found",
        "a_word_between_han_characters_is_found",
        "a_message_of_any_id_is_found",
    ),
    "search:chains": of(
        "issue 2; design 5",
        "A chain of continuations is walked once by a list and by a search, with the answer of "
        "every walk.",
        "state/test_chains",
        "what_is_remembered_of_a_chain_is_what_a_walk_would_say",
        "a_search_over_a_chain_walks_it_once",
        "a_list_of_a_chain_walks_it_once",
        "the_roots_in_a_circle_are_known_after_one_walk",
    ),
    "search:cut": of(
        "issue 2; hermes 11",
        "What an index of Hermes cuts short is read, newest first, or said not to have been.",
        "state/test_search_cut",
        "a_word_far_behind_in_what_a_tool_said_is_found",
        "what_a_tool_said_in_parts_is_found",
        "what_is_too_much_to_read_at_once_is_read_on_the_next_pages",
        "an_index_that_cuts_gives_the_answers_of_one_that_does_not",
    ),
    # -- upkeep ------------------------------------------------------------------------------
    "upkeep:orphans": of(
        "hermes 3.11",
        "Orphaned continuations are ended by the selection of the reference.",
        _UPKEEP,
        "an_orphaned_continuation_is_ended_once",
        "what_is_no_orphan_is_left_open",
    ),
    "upkeep:ghosts": of(
        "hermes 3.11",
        "Empty ghosts are deleted; one with a child is left out and blocks no other.",
        _UPKEEP,
        "a_ghost_with_a_child_is_left_out_and_blocks_no_other",
        "what_is_no_ghost_is_kept",
    ),
    "upkeep:delete": of(
        "hermes 3.11",
        "A session goes with its messages and delegates, other children stay.",
        _UPKEEP,
        "a_deleted_session_is_gone_with_its_messages",
        "delegates_go_with_their_session_and_so_do_theirs",
        "other_children_lose_their_parent",
    ),
    "upkeep:recount": of(
        "issue 2", "Counters are recomputed from rows.", _UPKEEP, "a_recount_says_what_the_rows_say"
    ),
    "upkeep:checks": of(
        "issue 2",
        "Integrity and sizes are told.",
        _UPKEEP,
        "a_sound_database_has_no_findings",
        "sizes_are_estimated_at_once_and_counted_on_demand",
    ),
    # -- the feed ----------------------------------------------------------------------------
    "feed:start": of(
        "issue 2",
        "Without a cursor it starts now: no replay of history.",
        _FEED,
        "without_a_cursor_it_starts_now_and_replays_nothing",
    ),
    "feed:cursor": of(
        "issue 2", "A cursor survives a restart.", _FEED, "a_cursor_survives_a_restart"
    ),
    "feed:copies": of(
        "issue 2",
        "Copies that a compaction carried are not new.",
        _FEED,
        "copies_that_a_compaction_carried_are_not_reported",
    ),
    # -- compaction --------------------------------------------------------------------------
    "compaction:in-place": of(
        "issue 4; design 8",
        "A range is flagged, a summary and exact copies of the tail stand in its place.",
        _COMPACTION,
        "a_summary_stands_in_the_place_of_what_it_replaces",
        "what_is_carried_is_copied_with_every_column_but_the_id",
        "flagged_rows_are_compacted_and_otherwise_as_they_were",
        "counters_and_revision_are_those_of_what_is_live",
        "what_is_compacted_is_found_once",
        "what_is_carried_is_no_news",
        "a_message_that_is_not_live_any_more_is_a_conflict",
    ),
    "compaction:copies": of(
        "issue 4; design 8",
        "A continuation gets exact copies of head and tail.",
        _COMPACTION,
        "messages_are_copied_to_another_session",
        "a_copy_to_an_unknown_session_is_refused",
    ),
    "compaction:undo": of(
        "issue 4; design 8",
        "Rows come back as they were, with what was said since.",
        _COMPACTION,
        "what_was_compacted_comes_back_row_by_row",
        "what_was_said_since_stays_when_the_rest_comes_back",
        "what_was_changed_since_does_not_come_back",
    ),
    "compaction:rows": of(
        "issue 4; design 8, 9",
        "A session is copied and put back with every column, also those that we do not know.",
        "contract/test_rows",
        "a_session_is_copied_with_every_column_but_those_that_are_given",
        "no_session_is_copied_over_another",
        "what_belongs_to_a_session_is_what_is_deleted_with_it",
        "routing_rows_are_put_back_as_they_were",
        "fields_are_put_back_to_what_they_were",
        "only_columns_of_a_session_are_put_back",
    ),
    "compaction:carried": of(
        "design 5; issue 2",
        "What a compaction carries on is no news and found once; what is said again is both.",
        "contract/test_carried",
        "what_is_carried_without_times_is_no_news_and_found_once",
        "what_a_continuation_began_with_is_no_news_and_found_once",
        "what_is_said_again_after_a_compaction_is_news_and_found_twice",
        "the_same_answer_to_two_questions_is_found_twice",
    ),
    "interop:carried": of(
        "issue 2, proof",
        "What the compaction of the real Hermes carries on is no news and found once.",
        "interop/test_hermes_carried",
        "what_theirs_carried_in_place_is_no_news_and_found_once",
        "what_theirs_carried_into_a_new_session_is_no_news_and_found_once",
    ),
    "errors:unknown-ids": of(
        "issue 2, bad input",
        "An unknown id has one of four answers, which the contract names.",
        "contract/test_unknown_ids",
        "an_id_that_is_not_there_is_answered",
        "an_id_that_has_to_be_there_is_not_found_and_named",
        "a_session_to_be_compacted_has_to_be_there",
    ),
    "faults:interrupts": of(
        "issue 2, proof",
        "Interrupts in the middle of a write lose nothing and stop nobody.",
        "faults/test_storm",
        "a_storm_of_interrupts_loses_nothing_and_leaves_a_database_that_works",
    ),
    "compaction:lock": of(
        "issue 4; reference 5.5",
        "One holder compresses a session; a lock that has run out is taken over.",
        _COMPACTION,
        "one_holder_has_the_lock_until_it_is_given_back",
        "a_lock_that_has_run_out_is_taken_over",
        "a_lock_belongs_to_one_session",
    ),
    "feed:waiting": of(
        "design 12",
        "Waiting ends with the commit of anybody.",
        _FEED,
        "waiting_ends_with_a_commit_of_any_instance",
        "a_commit_before_the_wait_is_not_missed",
        "a_commit_that_another_thread_has_heard_of_is_not_missed",
    ),
}
