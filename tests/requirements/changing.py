"""The tools that change something: plans by handles, who agrees, what is answered, the way back."""

from __future__ import annotations

from tests.requirements.entry import of

_CHANGES = "serve/test_changes"
_CONSENT = "serve/test_consent"

REQUIREMENTS = {
    "changing:plans": of(
        "surface 2; design 9",
        "A first call plans, a second does exactly that, and its batch takes it back.",
        _CHANGES,
        "pruning_plans_first_then_does_exactly_that_and_is_taken_back",
        "finalizing_ends_what_is_named",
        "compressing_by_a_summary_of_the_caller",
        "compressing_without_a_model",
        "what_was_taken_back_takes_no_place_in_the_list",
    ),
    "changing:handles": of(
        "surface 2",
        "A plan is passed alone, to the tool that made it; nothing to do is said without one.",
        _CHANGES,
        "a_plan_takes_nothing_beside_it",
        "a_plan_goes_to_the_tool_that_made_it",
        "an_unknown_handle_says_what_to_do_or_which_one_is_near_once",
        "nothing_to_do_is_said_without_a_plan",
        "a_session_that_is_too_short_to_compress_is_nothing_to_do",
        "what_is_of_no_session_takes_no_filter",
    ),
    "changing:edits": of(
        "surface 2; design 9",
        "An edit applies at once, of what is named exactly, and leaves what takes it back.",
        _CHANGES,
        "an_edit_applies_at_once_and_is_taken_back",
        "a_change_takes_no_prefix_and_no_title",
    ),
    "changing:edited": of(
        "surface 2; design 10",
        "Each edit can be made undone by another; a compression parent is reopened at its tip.",
        "serve/test_edits",
        "a_reopened_session_is_the_tip_of_what_was_compressed",
        "an_edit_takes_away_what_it_has_given",
    ),
    "changing:read-only": of(
        "design 10",
        "A server that only reads has no tool that changes something.",
        _CHANGES,
        "a_read_only_server_has_none_of_them",
    ),
    "changing:chosen": of(
        "surface 1",
        "Filters, ages and names choose what is planned; ages are for what nobody has named.",
        "serve/test_filters",
        "a_plan_to_prune_has_what_is_asked_for",
        "a_plan_to_finalize_has_what_is_asked_for",
        "the_default_age_stands_beside_filters_and_not_beside_names",
        "everything_but_the_trash_is_pruned_at_once",
        "sessions_end_with_the_reason_that_is_given_and_their_chats_begin_afresh",
    ),
    "changing:answers": of(
        "surface 2",
        "Plans and what became of them have exactly the keys of the surface.",
        "serve/test_answers",
        "a_plan_says_what_why_what_not_and_what_it_wins",
        "what_was_pruned_says_how_much_and_what_was_left_and_why",
        "what_was_finalized_says_how_many",
        "emptying_the_trash_says_that_it_has_no_undo",
        "a_compression_says_what_must_survive_and_then_what_did",
        "a_compression_is_of_the_shape_that_is_asked_for",
    ),
    "changing:asked": of(
        "surface 2; design 9",
        "Where the client can ask its human a plan is applied after a yes, and nothing else asks.",
        _CONSENT,
        "only_a_call_that_applies_a_plan_asks",
        "the_question_is_the_same_for_the_same_plan_and_names_some_of_it",
        "whoever_cannot_ask_has_agreed_by_the_handle",
    ),
    "changing:decided": of(
        "surface 2; design 9; issue 6",
        "Decline closes a plan, cancel leaves it, and nobody is asked in vain.",
        _CHANGES,
        "the_human_decides_where_the_client_can_ask",
        "a_yes_without_an_answer_changes_nothing_and_says_how_to_go_on",
        "nobody_is_asked_about_a_call_that_is_refused_anyway",
        "nobody_is_asked_by_a_server_that_was_told_not_to",
    ),
    "changing:compress": of(
        "surface 2; design 8; issue 6",
        "A compression is briefed, then done by the summary that it waits for; nothing else is.",
        "serve/test_compressing",
        "a_plan_for_a_summary_is_not_applied_without_one",
        "a_plan_without_a_model_takes_no_summary",
        "what_is_counted_is_the_messages_that_the_summary_stands_for",
        "the_question_counts_messages_and_is_not_asked_in_vain",
    ),
    "changing:dropped": of(
        "surface 2; design 9",
        "An undo that would drop something is a plan that says what, and asks about that.",
        "serve/test_compressing",
        "an_undo_that_drops_something_says_what_and_asks_about_that",
    ),
    "changing:clean": of(
        "design 8, 10",
        "A summary without a model brings no secret back, unless everything is asked for.",
        "serve/test_compressing",
        "a_summary_without_a_model_says_no_secret_of_what_it_stands_for",
        "who_wants_everything_has_it_in_a_summary_too",
    ),
    "changing:working": of(
        "issue 6; surface 2",
        "A change says how far it is; a cancelled one ends between two steps and is gone on with.",
        "serve/test_working",
        "a_client_hears_how_far_a_plan_is",
        "who_asks_for_no_progress_gets_none",
        "a_call_whose_time_is_over_answers_partial_and_the_same_call_goes_on",
        "a_cancelled_call_ends_between_two_steps_and_the_next_one_goes_on",
        "a_compression_that_is_cancelled_before_its_commit_changes_nothing",
        "a_deep_look_says_how_far_it_is_and_ends_when_it_is_cancelled",
    ),
    "changing:log": of(
        "design 9",
        "The log of changes names the client.",
        "serve/test_working",
        "the_log_names_the_client",
    ),
}
