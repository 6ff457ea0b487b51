"""The verbs that change something, as a person or a script has them at the command line."""

from __future__ import annotations

from tests.requirements.entry import of

REQUIREMENTS = {
    "verbs:question": of(
        "surface 5; issue 7",
        "A change shows its plan and asks; a no closes the plan, Ctrl-C leaves it open.",
        "cli/test_changing",
        "the_plan_is_shown_and_done_where_the_answer_is_yes",
        "a_no_changes_nothing_and_closes_the_plan",
        "a_declined_plan_cannot_be_applied",
        "without_a_terminal_and_a_yes_it_is_declined",
        "ctrl_c_at_the_question_leaves_the_plan_open",
    ),
    "verbs:plans": of(
        "surface 2, 5",
        "A plan is made, and applied later by its handle, with nothing beside it.",
        "cli/test_changing",
        "a_plan_is_made_shown_and_applied_later",
        "nothing_adds_to_a_plan",
        "a_plan_of_another_verb_is_refused_with_the_verb_that_takes_it",
        "what_was_changed_since_is_left_and_said",
    ),
    "verbs:json": of(
        "surface 5",
        "With --json standard output is one document, with the keys of the tool.",
        "cli/test_changing",
        "json_has_the_keys_of_the_tool",
        "json_is_alone_on_standard_output_also_where_somebody_is_asked",
        "nothing_to_do_is_done",
    ),
    "verbs:codes": of(
        "surface 5",
        "What is wrong is a line and an exit code that says of which kind it is.",
        "cli/test_changing",
        "what_is_wrong_is_said_in_a_line_and_by_the_exit_code",
        "somebody_else_at_the_store_is_busy_and_not_failed",
    ),
    "verbs:ctrl-c": of(
        "issue 7",
        "Ctrl-C ends between two steps, says how to go on, and the same plan does.",
        "cli/test_changing",
        "ctrl_c_ends_between_two_steps_and_the_same_plan_goes_on",
    ),
    "verbs:screens": of(
        "issue 7, proof",
        "Every line fits a terminal of 60, 80 and 140 columns; a script gets no style.",
        "cli/test_changing",
        "every_line_fits_the_terminal",
        "a_script_gets_no_style",
    ),
    "verbs:filters": of(
        "issue 7; hermes 3.12",
        "Every filter of a list chooses what is pruned too.",
        "cli/test_changing",
        "every_filter_chooses_what_is_pruned",
        "a_session_is_named_however_old_it_is",
    ),
    "verbs:trash-elsewhere": of(
        "design 9",
        "The trash goes to another folder on request, and comes back from there.",
        "cli/test_changing",
        "the_trash_goes_to_another_folder_and_comes_back_from_there",
    ),
    "verbs:compress": of(
        "issue 7",
        "A person compresses without a model, or by a summary of their own, and takes it back.",
        "cli/test_undoing",
        "a_person_sees_the_summary_that_is_made_without_a_model",
        "compressing_says_how_many_facts_it_kept_and_is_taken_back",
        "a_summary_of_ones_own_stands_in_its_place",
        "a_model_elsewhere_writes_the_summary_of_a_plan",
    ),
    "verbs:undo": of(
        "surface 5; design 9",
        "Every change names what undoes it; a restore that would drop something asks.",
        "cli/test_undoing",
        "edits_of_one_call_are_undone_as_one",
        "what_can_be_undone_is_listed_and_undone",
        "a_restore_that_drops_what_was_said_since_asks",
    ),
    "verbs:trash": of(
        "surface 5; design 9",
        "The trash says what it takes, is emptied after a question, and the log says who did.",
        "cli/test_undoing",
        "the_trash_says_what_it_takes_and_is_emptied_for_good",
        "the_log_says_who_has_changed_what",
        "what_only_reads_writes_nothing",
    ),
    "verbs:help": of(
        "issue 7, proof",
        "Every example of the help runs.",
        "cli/test_undoing",
        "every_example_of_the_help_is_taken",
    ),
    "verbs:hermes": of(
        "issue 7, proof",
        "Each verb does on a real Hermes home what Hermes states, and it reads the home after.",
        "interop/test_hermes_verbs",
        "what_hermes_states_goes_by_the_verb_and_comes_back",
        "hermes_reads_the_edits_and_a_named_end",
        "hermes_reads_what_is_compressed_and_what_comes_back",
        "hermes_reads_a_home_whose_index_was_merged_and_trash_emptied",
    ),
}
