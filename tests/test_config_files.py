"""The configuration files of a home and its environment: their order, and broken ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from session_core.config import GatewayConfig
from tests.test_config import DEFAULTS, POLICY


@pytest.fixture
def load(home_path: Path) -> Any:
    """Load a home with these files and this environment."""

    def load(yaml: str | None = None, older: Any = None, **environ: str) -> GatewayConfig:
        if yaml is not None:
            (home_path / "config.yaml").write_text(yaml, encoding="utf-8")
        if older is not None:
            text = older if isinstance(older, str) else json.dumps(older)
            (home_path / "gateway.json").write_text(text, encoding="utf-8")
        return GatewayConfig.load(home_path, environ)

    return load


def test_config_of_empty_home_has_defaults(load: Any, home_path: Path) -> None:
    config = load()
    assert config.to_dict() == {**DEFAULTS, "sessions_dir": str(home_path / "sessions")}
    assert config.problems == ()


def test_policy_is_read_from_own_section(load: Any) -> None:
    config = load("session_reset:\n  mode: idle\n  idle_minutes: 5\n")
    assert config.default_reset_policy.to_dict() == {**POLICY, "mode": "idle", "idle_minutes": 5}


def test_policy_is_read_from_gateway_section(load: Any) -> None:
    assert load("gateway: {session_reset: {mode: daily}}").default_reset_policy.mode == "daily"


def test_empty_own_section_overrides_gateway_section(load: Any) -> None:
    config = load("session_reset: {}\ngateway: {session_reset: {mode: daily}}")
    assert config.default_reset_policy.mode == "none"


def test_empty_section_keeps_older_file_values(load: Any) -> None:
    config = load("session_reset: {}", {"default_reset_policy": {"mode": "daily"}})
    assert config.default_reset_policy.mode == "daily"


def test_policy_section_replaces_older_file_policy(load: Any) -> None:
    config = load("session_reset: {mode: idle}", {"default_reset_policy": {"at_hour": 9}})
    assert config.default_reset_policy.to_dict() == {**POLICY, "mode": "idle"}


@pytest.mark.parametrize(
    "name",
    [
        "group_sessions_per_user",
        "thread_sessions_per_user",
        "multiplex_profiles",
        "write_sessions_json",
    ],
)
def test_flag_lookup_order_is_top_gateway_older(load: Any, name: str) -> None:
    other = not DEFAULTS[name]
    assert getattr(load(f"gateway: {{{name}: {other}}}"), name) is other
    assert getattr(load("{}", {name: other}), name) is other
    both = f"{name}: {other}\ngateway: {{{name}: {not other}}}"
    assert getattr(load(both, {name: not other}), name) is other


def test_empty_top_level_flag_overrides_gateway_flag(load: Any) -> None:
    assert load("write_sessions_json:\ngateway: {write_sessions_json: false}").write_sessions_json


def test_policy_reads_off_as_none_mode(load: Any) -> None:
    config = load("session_reset: {mode: off}")
    assert (config.default_reset_policy.mode, config.problems) == ("none", ())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("session_store_max_age_days", 7),
        ("reset_by_type", {"dm": {**POLICY, "mode": "idle"}}),
        ("reset_by_platform", {"irc": {**POLICY, "mode": "idle"}}),
        ("sessions_dir", "/elsewhere"),
    ],
)
def test_legacy_settings_come_from_older_file(load: Any, name: str, value: Any) -> None:
    assert load(None, {name: value}).to_dict()[name] == value
    below = load(json.dumps({"gateway": {name: value}}), {})
    top = load(json.dumps({name: value}), {})
    assert below.to_dict()[name] == top.to_dict()[name] != value
    assert (
        top.problems == below.problems == (f"config.yaml: {name} is read from gateway.json alone",)
    )


@pytest.mark.parametrize("folder", [None, "", 5, []])
def test_invalid_sessions_folder_uses_default(load: Any, folder: Any, home_path: Path) -> None:
    assert load(None, {"sessions_dir": folder}).sessions_dir == home_path / "sessions"


def test_relative_sessions_folder_is_below_home(load: Any, home_path: Path) -> None:
    assert load(None, {"sessions_dir": "deep/er"}).sessions_dir == home_path / "deep" / "er"


def test_loading_config_keeps_files_unchanged(load: Any, home_path: Path) -> None:
    load("session_reset: {at_hour: 99}\n", {"x": 1})
    assert (home_path / "config.yaml").read_text() == "session_reset: {at_hour: 99}\n"
    assert {path.name for path in home_path.iterdir()} == {"config.yaml", "gateway.json"}


# Broken files

BROKEN_YAML = {
    "cut off": "a: [1,\n",
    "a list": "- a\n",
    "a day that is none": "at: 2026-13-45\n",
    "a tag that does not fit": "at: !!timestamp soon\n",
    "a truth that is none": "at: !!bool soon\n",
    "a number that is none": "at: !!int ''\n",
    "code": "at: !!python/object/apply:os.getpid []\n",
    "deep": "[" * 3000,
    "control characters": "a: \x01\n",
}


@pytest.mark.parametrize("yaml", BROKEN_YAML.values(), ids=BROKEN_YAML)
def test_broken_config_file_keeps_older_values(load: Any, yaml: str) -> None:
    config = load(yaml, {"session_store_max_age_days": 7})
    assert config.session_store_max_age_days == 7
    assert len(config.problems) == 1
    assert config.problems[0].startswith("config.yaml ")


@pytest.mark.parametrize("older", ["{", "[1]", "\ufeff{}", "[" * 100_000, "nonsense", '{"a": 1} x'])
def test_broken_older_file_keeps_config_values(load: Any, older: str) -> None:
    config = load("session_reset: {mode: idle}", older)
    assert config.default_reset_policy.mode == "idle"
    assert len(config.problems) == 1
    assert config.problems[0].startswith("gateway.json ")


@pytest.mark.parametrize("name", ["config.yaml", "gateway.json"])
def test_non_text_config_file_is_reported(load: Any, home_path: Path, name: str) -> None:
    (home_path / name).write_bytes(b"\xff\xfe\x00")
    assert load().problems == (f"{name} cannot be read",)


@pytest.mark.parametrize("name", ["config.yaml", "gateway.json"])
def test_folder_as_config_file_is_reported(load: Any, home_path: Path, name: str) -> None:
    (home_path / name).mkdir()
    assert load().problems == (f"{name} cannot be read: not a regular file",)


@pytest.mark.parametrize(("yaml", "older"), [("", "{}"), ("# nothing\n", "null"), ("~", "[]")])
def test_empty_config_file_is_accepted(load: Any, yaml: str, older: str) -> None:
    assert load(yaml, older).problems == ()


def test_byte_order_mark_is_accepted(load: Any) -> None:
    config = load("\ufeffsession_reset: {mode: idle}")
    assert (config.default_reset_policy.mode, config.problems) == ("idle", ())


def test_parse_error_reports_line_without_text(load: Any) -> None:
    config = load("ok: 1\ntoken: 's3cret\n")
    assert config.problems == ("config.yaml cannot be read, see line 3",)


def test_unusable_values_are_reported_with_location(load: Any) -> None:
    config = load(
        "session_reset: {at_hour: 99, mode: Idle, 5: x}\n"
        "gateway: {thread_sessions_per_user: maybe}\n",
        {
            "session_store_max_age_days": "soon",
            "reset_by_platform": {"irc": {"at_hour": -1}},
            "reset_by_type": "daily",
        },
        SESSION_IDLE_MINUTES="0",
        SESSION_RESET_HOUR="x",
        GATEWAY_MULTIPLEX_PROFILES="maybe",
    )
    assert sorted(config.problems) == [
        "GATEWAY_MULTIPLEX_PROFILES cannot be 'maybe'",
        "SESSION_IDLE_MINUTES cannot be 0",
        "SESSION_RESET_HOUR cannot be 'x'",
        "config.yaml: gateway.thread_sessions_per_user cannot be 'maybe'",
        "config.yaml: session_reset.at_hour cannot be 99",
        "config.yaml: session_reset.mode is 'Idle', which is like none",
        "gateway.json: reset_by_platform.irc.at_hour cannot be -1",
        "gateway.json: reset_by_type cannot be 'daily'",
        "gateway.json: session_store_max_age_days cannot be 'soon'",
    ]


def test_invalid_section_is_reported(load: Any) -> None:
    assert load("session_reset: daily\ngateway: [1]").problems == (
        "config.yaml: session_reset cannot be 'daily'",
    )


# The environment


def test_environment_overrides_config_files(load: Any) -> None:
    config = load(
        "session_reset: {mode: both, idle_minutes: 5, at_hour: 6}",
        SESSION_IDLE_MINUTES=" 7 ",
        SESSION_RESET_HOUR="23",
    )
    assert config.default_reset_policy.to_dict() == {
        **POLICY,
        "mode": "both",
        "idle_minutes": 7,
        "at_hour": 23,
    }


def test_environment_affects_only_default_policy(load: Any) -> None:
    config = load(None, {"reset_by_type": {"dm": {"mode": "idle"}}}, SESSION_IDLE_MINUTES="7")
    assert config.get_reset_policy("irc", "dm").idle_minutes == 1440


def test_out_of_range_environment_number_uses_default(load: Any) -> None:
    config = load("session_reset: {at_hour: 6}", SESSION_RESET_HOUR="24")
    assert config.default_reset_policy.at_hour == 4


@pytest.mark.parametrize("text", ["", "x"])
def test_non_numeric_environment_value_keeps_file_value(load: Any, text: str) -> None:
    config = load("session_reset: {at_hour: 6}", SESSION_RESET_HOUR=text)
    assert config.default_reset_policy.at_hour == 6


@pytest.mark.parametrize(("word", "on"), [("on", True), ("0", False), ("", True), ("maybe", True)])
def test_environment_toggles_multiplex_profiles(load: Any, word: str, on: bool) -> None:
    config = load("multiplex_profiles: true", GATEWAY_MULTIPLEX_PROFILES=word)
    assert config.multiplex_profiles is on


@pytest.mark.parametrize(
    ("text", "seconds"), [("60", 60), ("0", 0), ("-1", -1), ("2.5", 2.5), ("", 3600), ("x", 3600)]
)
def test_environment_sets_auto_continue_freshness(load: Any, text: str, seconds: float) -> None:
    assert load(HERMES_AUTO_CONTINUE_FRESHNESS=text).auto_continue_freshness_s == seconds


def test_config_file_overrides_environment_freshness(load: Any) -> None:
    yaml = "agent:\n  gateway_auto_continue_freshness: 0\n"
    assert load(yaml, HERMES_AUTO_CONTINUE_FRESHNESS="60").auto_continue_freshness_s == 0


def test_config_reads_process_environment_by_default(
    home_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SESSION_RESET_HOUR", "9")
    assert GatewayConfig.load(home_path).default_reset_policy.at_hour == 9


def make_yaml_aliases() -> str:
    """Return YAML whose aliases stand for ten billion values."""
    lines = [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]" for at in range(1, 10)]
    return "\n".join(["a0: &a0 [x, x, x, x, x]", *lines, "session_reset: *a9"])


def make_yaml_merges() -> str:
    """Return YAML whose merges double on each line."""
    lines = [f"a{at}: &a{at} {{<<: [*a{at - 1}, *a{at - 1}], k{at}: 1}}" for at in range(1, 40)]
    return "\n".join(["a0: &a0 {k: 1}", *lines])


@pytest.mark.parametrize(
    "text",
    [
        make_yaml_aliases(),
        make_yaml_merges(),
        "session_reset: " + "[" * 100_000 + "]" * 100_000,
        "session_reset: " + "{a: " * 100_000 + "}" * 100_000,
        "session_reset: " + ":".join(["59"] * 1_000_000),
    ],
    ids=["aliases", "merges", "lists", "maps", "base 60"],
)
def test_yaml_alias_bomb_is_reported(load: Any, home_path: Path, text: str) -> None:
    (home_path / "config.yaml").write_text(text)
    assert load().problems == ("config.yaml cannot be read",)


def test_config_problem_shortens_large_value(load: Any, home_path: Path) -> None:
    (home_path / "config.yaml").write_text("session_reset: &a {mode: *a, at_hour: [*a, *a]}")
    assert all(len(problem) < 100 for problem in load().problems)
    assert load().problems
