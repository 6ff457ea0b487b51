"""What a person is told of a home at a terminal and on a page, and carries in and out of it."""

from __future__ import annotations

from tests.requirements.entry import of

REQUIREMENTS = {
    "reports:terminal": of(
        "issue 7; surface 5",
        "The report fits the terminal, in blocks and colour only where there are any.",
        "cli/test_stats",
        "every_line_of_the_report_fits_the_terminal",
        "blocks_are_drawn_only_where_the_encoding_has_them",
        "there_is_colour_on_a_terminal_alone",
        "json_is_the_answer_of_the_tool",
    ),
    "reports:mending": of(
        "issue 7",
        "What is wrong is said with the command line that mends it, in the same home.",
        "cli/test_stats",
        "what_is_wrong_comes_with_the_command_line_that_mends_it",
    ),
    "reports:page": of(
        "issue 7",
        "The report is one page that needs nothing else, and nothing in it is anybody's markup.",
        "cli/test_stats",
        "a_page_asks_nobody_for_anything",
        "what_somebody_wrote_is_text_on_the_page",
        "a_page_that_is_there_is_replaced_when_somebody_says_so",
        "what_is_no_page_is_never_replaced",
    ),
    "reports:browser": of(
        "issue 7",
        "The page is light by day, dark by night, readable, and as wide as any window.",
        "cli/test_page",
        "it_is_light_by_day_and_dark_by_night",
        "nothing_sticks_out_of_any_window_and_nobody_is_called",
        "what_somebody_wrote_does_nothing_in_it",
        "every_text_can_be_read_on_its_ground",
    ),
    "reports:carrying": of(
        "issue 7; surface 5",
        "What is exported comes in equal, after a look and a question, and can be taken back.",
        "cli/test_export_import",
        "what_is_exported_comes_into_another_home_equal",
        "everything_is_exported_unless_something_is_asked_for",
        "it_is_shown_and_asked_before_anything_comes_in",
        "import_is_undone_by_the_printed_command",
        "without_a_terminal_nothing_comes_in_but_by_yes",
        "a_file_that_changes_while_somebody_looks_does_not_come_in",
        "ctrl_c_at_the_question_leaves_all_as_it_was",
    ),
    "reports:watching": of(
        "issue 7",
        "Who watches a home hears what other processes commit, also where it comes later.",
        "cli/test_watch",
        "a_commit_of_another_process_is_a_line",
        "json_is_an_event_a_line_for_a_script",
        "a_home_that_appears_later_is_heard",
    ),
    "reports:completion": of(
        "issue 7",
        "Shells complete verbs, options, what these may be, and files.",
        "cli/test_completion",
        "bash_knows_every_verb",
        "bash_knows_the_options_of_a_verb_and_what_they_may_be",
        "bash_proposes_files_where_one_is_wanted",
        "zsh_takes_the_script",
        "fish_completes_with_the_script",
    ),
}
