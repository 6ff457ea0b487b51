"""The project itself, and what is proved beside Hermes and under faults."""

from __future__ import annotations

from tests.requirements.entry import of

REQUIREMENTS = {
    # -- the project -------------------------------------------------------------------------
    "project:driver": of(
        "issue 2; design 3",
        "One file decides on the SQLite library, before the first connection; it can be asked.",
        "test_driver",
        "no_other_file_imports_a_sqlite_library",
        "afterwards_the_choice_is_fixed",
        "what_was_decided_can_be_asked",
    ),
    "project:names": of(
        "style 3",
        "The public names are said in one place, and importing them does nothing.",
        "test_public_names",
        "the_public_names_are_all_that_is_public",
        "importing_loads_nothing_heavy",
        "importing_opens_no_file_but_code",
    ),
    "project:async": of(
        "issue 2; design 2",
        "The async face is every method of the contract, over worker threads.",
        "test_async",
        "every_method_of_the_contract_is_there_with_its_signature",
        "a_cancelled_call_is_finished_all_the_same",
        "a_call_does_not_block_the_loop",
    ),
    # -- beside Hermes -----------------------------------------------------------------------
    "interop:reads": of(
        "issue 2, proof",
        "Every row, title, tip and list agrees with its own answer or a named correction.",
        "interop/test_hermes_reads",
        "every_session_row_reads_as_theirs",
        "every_message_row_reads_as_theirs",
        "the_list_has_their_lines",
    ),
    "interop:writes": of(
        "issue 2, proof",
        "What we write it reads, finds and goes on with.",
        "interop/test_hermes_writes",
        "they_read_and_find_what_we_wrote",
        "they_go_on_where_we_stopped",
    ),
    "interop:search": of(
        "issue 2, proof",
        "Search finds what its own finds, rewound rows excepted.",
        "interop/test_hermes_search",
        "words_phrases_prefixes_and_operators_find_what_theirs_find",
    ),
    "interop:filters": of(
        "hermes 3.11",
        "Each filter selects what its own selects.",
        "interop/test_hermes_filters",
        "each_filter_selects_what_theirs_selects",
    ),
    "interop:upkeep": of(
        "hermes 3.11",
        "Upkeep selects what its own selects, or the named correction.",
        "interop/test_hermes_upkeep",
        "orphaned_continuations_are_finalized_as_theirs",
    ),
    "interop:beside": of(
        "issue 2, proof",
        "Two processes append to one session: nothing lost; reading changes nothing.",
        "interop/test_hermes_beside",
        "two_processes_append_to_one_session_and_nothing_is_lost",
        "reading_changes_nothing",
    ),
    "interop:hours": of(
        "issue 2, proof",
        "After many random calls on twin homes both are equal.",
        "interop/test_hermes_hours",
        "after_a_random_hour_both_homes_are_equal",
    ),
    "interop:schemas": of(
        "issue 2",
        "Schemas 16 to 30: built as the packages build them, or from the reference.",
        "interop/test_hermes_schemas",
        "our_builder_makes_what_the_package_makes",
    ),
    "interop:newer": of(
        "hermes 11",
        "Newer schemas are read and written, and what we do not know is kept.",
        "interop/test_newer_schemas",
        "every_kind_of_write_keeps_the_file_and_what_we_do_not_know",
    ),
    # -- routes beside Hermes ----------------------------------------------------------------
    "routes:read": of(
        "issue 3, proof",
        "An index written by the real store is read with nothing lost, and the reverse.",
        "interop/test_hermes_routes",
        "what_their_store_wrote_is_read_with_nothing_lost",
        "what_was_added_by_hand_survives_our_changes",
        "their_store_loads_what_ours_wrote_field_by_field",
        "what_we_delete_does_not_come_back_in_theirs",
        "keys_are_built_as_theirs",
        "beside_a_gateway_that_lives_our_changes_are_refused",
    ),
    "routes:change": of(
        "issue 3, proof",
        "After our prune, reset and rotation the real store loads what we meant.",
        "interop/test_hermes_routes_changes",
        "a_reset_of_ours",
        "a_rotation_that_our_route_follows",
        "a_pruning_of_ours",
        "our_check_at_the_start_leads_the_chat_on_after_such_a_crash",
    ),
    "routes:faults": of(
        "issue 3, proof",
        "A fault in a rotation or reset leaves the old or the new state, and the next start heals.",
        "faults/test_routes",
        "a_fault_leaves_the_routes_before_or_after_and_the_next_start_heals",
        "every_change_of_the_routes_is_swept",
    ),
    "routes:told": of(
        "issue 3, proof",
        "A process that is killed anywhere owes an end to nobody: the next start tells it, once.",
        "faults/test_routes",
        "an_end_that_came_about_is_told_once_over_a_fault",
    ),
    # -- faults ------------------------------------------------------------------------------
    "faults:kill": of(
        "issue 2, proof",
        "No acknowledged row is lost to a kill.",
        "faults/test_kills",
        "no_acknowledged_row_is_lost_to_a_kill",
    ),
    "faults:sweep": of(
        "issue 2, proof",
        "An error at the nth write or fsync leaves the state before or after.",
        "faults/test_sweep",
        "a_fault_leaves_the_state_before_or_after",
    ),
    "faults:full": of(
        "issue 2, proof",
        "A full disk refuses, and goes on with room.",
        "faults/test_full_disk",
        "a_full_disk_refuses_and_goes_on_with_room",
    ),
    "faults:locks": of(
        "issue 2, proof; design 4",
        "Nothing of ours loses a commit of a holder whose locks were dropped.",
        "faults/test_lost_locks",
        "nothing_of_ours_loses_a_commit_of_a_holder",
    ),
    "faults:own-locks": of(
        "reliability 1.3",
        "No public call drops a lock of this process.",
        "faults/test_file_locks",
        "the_locks_of_this_process_are_the_same_before_and_after_each_call",
    ),
    "faults:busy": of(
        "issue 2",
        "A held write lock is waited for, then Busy says who to ask.",
        "faults/test_write_lock",
        "a_write_waits_until_the_lock_is_given_back",
        "an_impatient_write_says_who_holds_the_lock_and_changes_nothing",
    ),
    "faults:files": of(
        "issue 2",
        "A truncated or encrypted file, a directory, an old schema: refused and left as it is.",
        "faults/test_bad_files",
        "a_bad_file_is_refused_and_left_as_it_is",
    ),
    "faults:permissions": of(
        "issue 2, proof",
        "What may not be read or written is denied; a read-only mount is read.",
        "faults/test_permissions",
        "a_file_that_may_not_be_read_is_denied",
        "a_mount_that_nobody_can_write_is_read_as_one_that_cannot_change",
    ),
    "faults:threads": of(
        "reliability 1.4",
        "An interrupted caller stops nobody else.",
        "faults/test_threads",
        "a_caller_that_is_interrupted_while_it_waits_stops_nobody_else",
    ),
}
