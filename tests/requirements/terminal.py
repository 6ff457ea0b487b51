"""What a person sees who types the commands."""

from __future__ import annotations

from tests.requirements.entry import of

REQUIREMENTS = {
    "terminal:demo": of(
        "issue 7; design 10",
        "The demo asks a server of a sample home what a client would, and leaves nothing behind.",
        "cli/test_demo",
        "the_demo_asks_a_server_for_all_that_a_client_would_and_leaves_nothing_behind",
        "what_the_demo_removes_is_there_again_behind_it",
        "a_demo_that_is_told_to_end_leaves_no_folder_and_no_process",
        "a_client_that_starts_the_demo_is_served_the_sample_home",
    ),
    "terminal:doctor": of(
        "issue 7; design 9",
        "The doctor says of each thing how it is and what to do, and changes nothing.",
        "cli/test_doctor",
        "whatever_is_not_ok_has_a_next_step",
        "where_there_is_nothing_yet_it_says_what_to_do_and_makes_nothing",
        "the_findings_come_with_the_command_that_mends_them_and_nothing_is_changed",
        "a_database_that_cannot_be_read_is_a_failure_with_a_way_out",
        "a_token_that_is_none_is_a_failure_and_none_is_made_by_looking",
    ),
    "terminal:handshake": of(
        "issue 7",
        "What a client starts is started; every way to fail is told apart, and no process stays.",
        "cli/test_doctor",
        "what_a_client_starts_is_started_and_every_way_to_fail_is_told_apart",
        "one_that_will_not_end_is_ended",
        "what_a_project_says_is_told_and_never_started",
        "whatever_a_program_does_instead_is_said_in_a_line",
        "a_client_that_gets_to_another_home_is_told_how_to_get_to_this_one",
    ),
    "terminal:install": of(
        "issue 7; mcp 8",
        "A client is told in its own file, and uninstall leaves every byte as it was.",
        "cli/test_install",
        "a_file_with_other_things_in_it_keeps_them_to_the_byte",
        "uninstall_leaves_every_byte_of_json_as_it_was",
        "uninstall_leaves_every_byte_of_toml_as_it_was",
        "what_is_half_written_or_of_another_form_is_left_alone",
        "what_a_client_writes_while_the_person_looks_is_not_lost",
        "a_file_that_is_read_only_is_left_alone",
        "twice_is_the_same_as_once",
        "each_system_has_its_own_places",
    ),
    "terminal:refused": of(
        "issue 7",
        "What belongs to another user is left alone, and the refusal says why.",
        "faults/test_install_refused",
        "a_configuration_of_another_user_is_left_alone",
        "in_a_home_folder_of_another_user_no_folder_is_made",
        "what_may_not_be_read_is_a_line_of_the_doctor_with_a_next_step",
    ),
    "terminal:widths": of(
        "issue 7, proof",
        "An id, a key, a handle or a command that somebody types again is never cut.",
        "cli/test_widths",
        "every_key_name_and_session_of_a_route_is_whole",
        "the_log_has_who_what_and_plan_whole",
        "every_handle_of_a_batch_is_whole",
        "ids_of_all_lengths_are_whole_with_their_profile",
        "what_a_plan_is_about_and_what_it_leaves_is_whole",
        "the_command_that_mends_what_the_doctor_found_is_whole",
        "what_can_be_typed_next_is_a_line_of_its_own",
        "the_bare_command_cuts_no_advice",
    ),
    "terminal:clients": of(
        "issue 7; mcp 8",
        "Real clients find what install wrote, and by a command of their own write the same.",
        "clients/test_real_clients",
        "install_writes_what_the_command_of_the_client_writes",
        "install_for_a_project_writes_what_the_client_writes_there",
        "a_client_finds_what_install_has_told_it_until_uninstall",
    ),
}
