"""Sessions, their titles and usage, their messages, and what they are to each other."""

from __future__ import annotations

from tests.requirements.entry import of

_SESSIONS = "contract/test_sessions"
_TITLES = "contract/test_titles"
_MESSAGES = "contract/test_messages"
_WINDOWS = "contract/test_windows"
_LINEAGE = "contract/test_lineage"
_USAGE = "contract/test_usage"

REQUIREMENTS = {
    # -- sessions ----------------------------------------------------------------------------
    "sessions:create": of(
        "hermes 3.8",
        "A second create fills what is empty; source, user and start never change.",
        _SESSIONS,
        "a_second_create_fills_what_is_empty_and_changes_nothing_else",
        "a_second_create_never_sets_a_user",
    ),
    "sessions:lazy": of(
        "issue 2; design 7",
        "Nothing is stored before the first message.",
        _SESSIONS,
        "the_first_message_creates_its_session_in_the_same_step",
        "a_message_that_is_refused_creates_no_session",
        "no_messages_create_no_session",
    ),
    "sessions:mapping": of(
        "design 2", "Rows read as mappings.", _SESSIONS, "a_created_session_reads_as_a_mapping"
    ),
    "sessions:end": of(
        "hermes 3.8",
        "The first end reason wins, and none at all is possible.",
        _SESSIONS,
        "the_first_end_reason_wins",
        "a_session_may_end_without_a_reason",
    ),
    "sessions:reopen": of(
        "hermes 3.8", "Reopening forgets the end.", _SESSIONS, "reopening_forgets_the_end"
    ),
    "sessions:promote": of(
        "hermes 3.8",
        "A reset ends what lives or was only closed by its agent.",
        _SESSIONS,
        "a_reset_promotes_only_what_lives_or_was_closed_by_its_agent",
    ),
    "sessions:archive": of(
        "hermes 3.7",
        "Archiving reaches the whole lineage, both ways.",
        _SESSIONS,
        "archiving_reaches_the_whole_lineage_both_ways",
    ),
    "sessions:peer": of(
        "hermes 3.8",
        "Peer fields are overwritten, name and origin only where they are given.",
        _SESSIONS,
        "a_peer_is_overwritten_but_a_name_only_where_it_is_given",
    ),
    "sessions:expiry": of(
        "issue 2",
        "Expiry is noted, where the home has a column for it.",
        _SESSIONS,
        "expiry_is_noted_where_there_is_a_column",
    ),
    "sessions:unknown": of(
        "issue 2; design 10",
        "An unknown id is not found, its nearest are named, and nothing changes.",
        _SESSIONS,
        "an_unknown_session_is_not_found_and_its_nearest_are_named",
    ),
    "sessions:looking": of(
        "design 4",
        "Columns are found by looking, never assumed from a version.",
        _SESSIONS,
        "a_column_that_this_home_has_not_is_unsupported",
    ),
    "sessions:arguments": of(
        "issue 2",
        "An argument that makes no sense is told so by name, and changes nothing.",
        "contract/test_arguments",
        "an_argument_that_makes_no_sense_is_invalid_and_changes_nothing",
        "a_condition_that_makes_no_sense_is_invalid",
        "an_id_that_is_not_there_is_named_briefly",
    ),
    "sessions:invalid": of(
        "issue 2",
        "Input that makes no sense has its own error and changes nothing.",
        _SESSIONS,
        "fields_that_make_no_sense_are_invalid",
        "an_id_that_cannot_be_one_is_invalid",
    ),
    # -- titles ------------------------------------------------------------------------------
    "titles:cleaning": of(
        "hermes 3.9", "Titles are cleaned as the reference says.", _TITLES, "a_title_is_cleaned"
    ),
    "titles:length": of(
        "hermes 3.9",
        "100 characters after cleaning, more is a ValueError.",
        _TITLES,
        "a_title_of_101_characters_is_too_long",
    ),
    "titles:unique": of(
        "hermes 3.9",
        "A title is unique, also against archived sessions; the error names the holder.",
        _TITLES,
        "a_title_is_unique_also_against_archived_sessions",
        "a_title_is_compared_exactly",
    ),
    "titles:moving": of(
        "hermes 3.9",
        "A title moves from an ancestor of the conversation.",
        _TITLES,
        "a_title_moves_from_an_ancestor_of_the_conversation",
        "a_title_moves_not_from_a_descendant_nor_to_a_branch",
    ),
    "titles:next": of(
        "hermes 3.9",
        "The next title of a lineage is numbered, and free.",
        _TITLES,
        "the_next_title_of_a_lineage_is_numbered",
        "the_next_title_is_free_even_where_it_had_to_be_cut",
    ),
    "titles:resolve": of(
        "hermes 3.9",
        "A title resolves to the newest of its lineage, else to the one that has it.",
        _TITLES,
        "a_title_resolves_to_the_newest_of_its_lineage",
    ),
    # -- usage -------------------------------------------------------------------------------
    "usage:totals": of(
        "hermes 3.8",
        "Tokens and costs are added, or set.",
        _USAGE,
        "counts_are_added",
        "absolute_counts_are_set_and_make_no_row",
    ),
    "usage:models": of(
        "hermes 3.8",
        "Each model and task has its row.",
        _USAGE,
        "each_model_has_its_own_row",
        "calls_beside_the_conversation_count_for_their_task_only",
    ),
    "usage:route": of(
        "hermes 3.8",
        "The first accounted call may replace the requested model, later ones fill gaps.",
        _USAGE,
        "the_first_call_may_replace_the_requested_route",
    ),
    "usage:invalid": of(
        "issue 2",
        "A count is a whole number and no less than 0, added or set.",
        _USAGE,
        "counts_that_make_no_sense_are_invalid",
    ),
    # -- messages ----------------------------------------------------------------------------
    "messages:content": of(
        "hermes 3.6",
        "Text, parts, bytes and numbers read as they were given.",
        _MESSAGES,
        "content_reads_as_it_was_given",
        "half_characters_inside_parts_break_nothing_later",
    ),
    "messages:columns": of(
        "hermes 3.6",
        "Every column is kept; empty reasoning is not none; an unknown column is invalid.",
        _MESSAGES,
        "openai_name_is_the_tool_name",
        "private_keys_are_ignored",
        "unknown_keys_are_refused_by_name",
        "every_column_reads_as_it_was_given",
        "empty_reasoning_is_not_no_reasoning",
        "a_message_that_makes_no_sense_is_invalid_and_changes_nothing",
    ),
    "messages:counters": of(
        "hermes 3.8",
        "Counters count messages of all roles and calls of tools.",
        _MESSAGES,
        "an_append_is_its_id_with_the_revisions",
        "rows_of_any_role_are_kept",
        "tool_calls_of_any_role_are_counted_as_a_recount_does",
    ),
    "messages:order": of(
        "design 5",
        "The order of messages is that of their ids, whatever their times say.",
        _MESSAGES,
        "rows_are_read_in_order_of_ids_and_in_parts",
    ),
    "messages:flags": of(
        "hermes 3.7",
        "Flags are those of the table, and never (1, 1).",
        _MESSAGES,
        "a_rewind_takes_back_a_message_and_all_after_it",
        "a_compaction_flags_live_rows_and_appends_in_their_place",
        "a_restore_after_a_compaction_leaves_compacted_rows_compacted",
    ),
    "messages:replace": of(
        "hermes 3.7",
        "Replacing deletes all rows or the live ones; clearing deletes them all.",
        _MESSAGES,
        "replacing_deletes_every_row",
        "replacing_live_rows_keeps_the_others",
        "clearing_deletes_every_row",
    ),
    "messages:revision": of(
        "design 5",
        "Every kind of change changes the revision.",
        "contract/test_revisions",
        "every_kind_of_change_changes_the_revision",
        "a_revision_sees_rows_of_strangers",
    ),
    "messages:chain": of(
        "design 5",
        "An append chain is continuous.",
        _MESSAGES,
        "an_append_chain_is_continuous_across_instances",
    ),
    "messages:expect": of(
        "design 5",
        "An append that expects another revision is a conflict.",
        _MESSAGES,
        "an_append_after_a_foreign_change_is_a_conflict",
    ),
    "messages:platform": of(
        "hermes 3.6",
        "A message of a platform is known again by its id.",
        _MESSAGES,
        "a_platform_message_is_known_again",
    ),
    # -- windows -----------------------------------------------------------------------------
    "windows:edges": of(
        "issue 2",
        "Windows before, after and around a message, with whether there is more.",
        _WINDOWS,
        "before_excludes_its_edge",
        "after_excludes_its_edge",
        "around_has_its_center_and_both_sides",
    ),
    "windows:view": of(
        "design 5",
        "A full view merges compacted messages; rewound ones are in neither.",
        _WINDOWS,
        "a_full_view_merges_compacted_messages_in_order",
        "rewound_messages_are_in_no_window",
    ),
    "windows:walk": of(
        "issue 2",
        "A walk through the pages is complete, also while another appends.",
        _WINDOWS,
        "a_walk_through_the_pages_is_complete",
        "a_walk_is_complete_while_another_appends",
    ),
    "windows:conversation": of(
        "hermes 3.6",
        "The conversation form is what a model is sent; ancestors are continuations only.",
        _WINDOWS,
        "a_conversation_is_what_a_model_is_sent",
        "a_conversation_reaches_back_along_continuations_only",
    ),
    # -- lineage -----------------------------------------------------------------------------
    "lineage:kinds": of(
        "hermes 3.10",
        "Continuation, branch and delegate are told apart.",
        _LINEAGE,
        "a_link_is_told_by_its_parents_end_and_its_marks",
    ),
    "lineage:delegates": of(
        "hermes 3.10; 3.11",
        "A mark makes a delegate, to lists and to a delete alike.",
        _LINEAGE,
        "a_delegate_is_one_to_lists_and_to_a_delete_alike",
    ),
    "lineage:circles": of(
        "issue 2",
        "No session becomes its own ancestor.",
        _LINEAGE,
        "no_session_becomes_its_own_ancestor",
        "a_session_that_is_new_is_not_its_own_parent",
        "a_circle_that_is_there_hinders_nobody",
    ),
    "lineage:tip": of(
        "hermes 3.10",
        "The tip goes by the rule of preference, however long the chain.",
        _LINEAGE,
        "of_several_continuations_the_tip_is",
        "a_chain_of_120_has_one_root_and_one_tip",
    ),
    "lineage:damage": of(
        "hermes 3.10; 14",
        "Cycles and broken links are survived, and no conversation vanishes.",
        _LINEAGE,
        "a_cycle_of_parents_is_survived",
        "a_link_to_a_session_that_is_gone_is_an_end",
    ),
}
