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
}
