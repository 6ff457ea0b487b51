"""What is kept about a home and not in it: plans, trash, batches, steps."""

from __future__ import annotations

from tests.requirements.entry import of

REQUIREMENTS = {
    "ledger:folder": of(
        "design 4",
        "What we keep is outside the home, bound to its path and inode; reading makes nothing.",
        "ledger/test_folder",
        "looking_makes_nothing",
        "it_is_its_owners_alone_and_outside_the_home",
        "a_home_that_moved_is_found_again",
        "another_database_in_its_place_is_another_home",
    ),
    "ledger:plans": of(
        "issue 4; design 9",
        "A plan is recorded with its members, valid for a day, applied once, and keeps its result.",
        "ledger/test_plans",
        "a_plan_is_what_was_recorded",
        "a_plan_that_has_run_out_says_so",
        "a_finished_plan_answers_its_result_and_cannot_be_begun",
        "nothing_outside_of_a_plan_is_given_to_a_step",
        "a_member_belongs_to_one_step",
    ),
    "ledger:trash": of(
        "design 9",
        "Trash holds every value as it was, for thirty days or until it is emptied, on any disk.",
        "ledger/test_batches",
        "a_batch_has_its_steps_in_order_and_they_their_trash",
        "trash_expires_after_thirty_days",
        "trash_of_an_age_is_emptied_on_purpose",
        "a_batch_cannot_be_undone_twice",
        "trash_goes_to_another_disk_and_is_found_there_by_anybody",
    ),
    "ledger:packing": of(
        "design 9",
        "What is kept comes back as it was, and damage is never returned.",
        "ledger/test_packing",
        "what_is_kept_comes_back_as_it_was",
        "what_is_damaged_is_never_returned",
    ),
    "ledger:file": of(
        "issue 4",
        "The ledger is shared by processes; a damaged or newer one is refused and says what to do.",
        "ledger/test_ledger",
        "processes_share_a_ledger",
        "a_damaged_file_is_corrupt_and_says_what_to_do",
        "a_newer_schema_is_unsupported_and_left_alone",
        "the_audit_log_is_paged",
    ),
    "ledger:interrupts": of(
        "issue 4",
        "An interrupt at any place leaves a ledger that works, for this process and for others.",
        "ledger/test_ledger_interrupts",
        "an_interrupt_at_any_place_leaves_a_ledger_that_works",
    ),
    "ledger:steps": of(
        "issue 4; design 9",
        "Trash is durable before a change; a step that was killed was done or never was.",
        "ledger/test_steps",
        "the_trash_is_durable_before_the_change_begins",
        "what_was_changed_since_is_skipped",
        "a_step_that_was_killed_was_done_or_never_was",
        "a_step_that_was_given_up_is_not_done_by_a_process_that_wakes",
        "a_route_and_its_session_are_one_step",
    ),
    "ledger:faults": of(
        "issue 4, proof",
        "A fault at any write of home or ledger leaves a step undoable or never begun.",
        "faults/test_ledger_steps",
        "a_fault_leaves_a_step_done_and_undoable_or_never_begun",
    ),
    "ledger:refused": of(
        "issue 4",
        "Where the ledger cannot be written nothing is removed.",
        "faults/test_ledger_refused",
        "a_ledger_that_may_not_be_written_is_denied_and_nothing_is_removed",
        "trash_that_does_not_fit_removes_nothing_and_goes_on_with_room",
    ),
}
