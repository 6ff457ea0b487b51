"""The configuration of a home: every form of it, and broken values."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_core.chats import Platform
from session_core.config import GatewayConfig, SessionResetPolicy
from session_core.errors import InvalidInput

POLICY: dict[str, Any] = {
    "mode": "none",
    "at_hour": 4,
    "idle_minutes": 1440,
}
DEFAULTS: dict[str, Any] = {
    "default_reset_policy": POLICY,
    "reset_by_type": {},
    "reset_by_platform": {},
    "sessions_dir": None,
    "write_sessions_json": True,
    "group_sessions_per_user": True,
    "thread_sessions_per_user": False,
    "multiplex_profiles": False,
    "session_store_max_age_days": 90,
    "auto_continue_freshness_s": 3600,
}


# Defaults and shapes


def test_config_has_defaults() -> None:
    assert GatewayConfig().to_dict() == DEFAULTS


def test_config_of_missing_home_has_defaults(home_path: Path) -> None:
    assert GatewayConfig.load(home_path / "none", {}).problems == ()


def test_config_accepts_keyword_arguments() -> None:
    config = GatewayConfig(
        session_store_max_age_days=7,
        default_reset_policy=SessionResetPolicy(mode="idle", idle_minutes=5),
        reset_by_type={"dm": SessionResetPolicy(mode="daily", at_hour=3)},
        reset_by_platform={Platform.TELEGRAM: SessionResetPolicy(idle_minutes=7)},
        sessions_dir=Path("somewhere"),
        write_sessions_json=False,
        group_sessions_per_user=False,
        thread_sessions_per_user=True,
    )
    assert config.to_dict() == {
        **DEFAULTS,
        "session_store_max_age_days": 7,
        "default_reset_policy": {**POLICY, "mode": "idle", "idle_minutes": 5},
        "reset_by_type": {"dm": {**POLICY, "mode": "daily", "at_hour": 3}},
        "reset_by_platform": {"telegram": {**POLICY, "idle_minutes": 7}},
        "sessions_dir": "somewhere",
        "write_sessions_json": False,
        "group_sessions_per_user": False,
        "thread_sessions_per_user": True,
    }


def test_config_round_trip_keeps_unread_keys() -> None:
    policy = {**POLICY, "notify": False, "notify_exclude": ["slack"], "of_the_future": {"x": 1}}
    stored = {**DEFAULTS, "default_reset_policy": policy, "sessions": {"auto_prune": True}}
    assert GatewayConfig.from_dict(stored).to_dict() == stored


# Unusable values


@pytest.mark.parametrize("hour", [-1, 24, 4.5, "x", True, [], 10**30])
def test_invalid_reset_hour_defaults_to_four(hour: Any) -> None:
    assert SessionResetPolicy.from_dict({"at_hour": hour}).at_hour == 4


@pytest.mark.parametrize(("hour", "read"), [(0, 0), (23, 23), ("17", 17), (5.0, 5), (None, 4)])
def test_reset_hour_is_parsed(hour: Any, read: int) -> None:
    assert SessionResetPolicy.from_dict({"at_hour": hour}).at_hour == read


@pytest.mark.parametrize("minutes", [0, -1, "x", float("inf"), float("nan"), True, {}])
def test_invalid_idle_time_defaults_to_day(minutes: Any) -> None:
    assert SessionResetPolicy.from_dict({"idle_minutes": minutes}).idle_minutes == 1440


@pytest.mark.parametrize(("minutes", "read"), [(1, 1), (0.5, 0.5), ("90", 90), (None, 1440)])
def test_idle_time_is_parsed(minutes: Any, read: float) -> None:
    assert SessionResetPolicy.from_dict({"idle_minutes": minutes}).idle_minutes == read


def test_unknown_reset_mode_is_kept() -> None:
    assert SessionResetPolicy.from_dict({"mode": "weekly"}).mode == "weekly"


@pytest.mark.parametrize("mode", [None, False, 5, []])
def test_non_text_reset_mode_becomes_none(mode: Any) -> None:
    assert SessionResetPolicy.from_dict({"mode": mode}).mode == "none"


def test_policy_validates_assigned_values() -> None:
    policy = SessionResetPolicy()
    with pytest.raises(InvalidInput, match="at_hour must be an integer from 0 to 23, got 99"):
        policy.at_hour = 99
    assert policy.at_hour == 4


@pytest.mark.parametrize("days", [-1, -999, -0.5, "-3"])
def test_negative_retention_days_become_zero(days: Any) -> None:
    assert (
        GatewayConfig.from_dict({"session_store_max_age_days": days}).session_store_max_age_days
        == 0
    )


@pytest.mark.parametrize("days", ["soon", "7.5", [], {}, float("inf"), float("nan"), None, True])
def test_invalid_retention_days_default_to_ninety(days: Any) -> None:
    assert (
        GatewayConfig.from_dict({"session_store_max_age_days": days}).session_store_max_age_days
        == 90
    )


@pytest.mark.parametrize(("days", "read"), [(0, 0), (30, 30), ("30", 30), (30.9, 30)])
def test_retention_days_are_parsed(days: Any, read: int) -> None:
    assert (
        GatewayConfig.from_dict({"session_store_max_age_days": days}).session_store_max_age_days
        == read
    )


def test_disabled_retention_days_become_zero() -> None:
    assert GatewayConfig.from_dict({"session_store_max_age_days": False}).to_dict() == {
        **DEFAULTS,
        "session_store_max_age_days": 0,
    }


@pytest.mark.parametrize("yes", [True, 1, "yes", " On ", "TRUE", "1"])
def test_flag_accepts_every_spelling_of_yes(yes: Any) -> None:
    assert (
        GatewayConfig.from_dict({"thread_sessions_per_user": yes}).thread_sessions_per_user is True
    )


@pytest.mark.parametrize("no", [False, 0, "no", " Off ", "FALSE", "0"])
def test_flag_accepts_every_spelling_of_no(no: Any) -> None:
    assert GatewayConfig.from_dict({"write_sessions_json": no}).write_sessions_json is False


@pytest.mark.parametrize("odd", ["maybe", "", [], {}, None])
def test_unreadable_flag_uses_default(odd: Any) -> None:
    config = GatewayConfig.from_dict({"write_sessions_json": odd, "thread_sessions_per_user": odd})
    assert (config.write_sessions_json, config.thread_sessions_per_user) == (True, False)


# Values passed by code


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a mode": ({"mode": "idel"}, "mode must be one of none, idle, daily, both, got 'idel'"),
    "a mode by case": ({"mode": "Idle"}, "mode must be one of none, idle, daily, both, got 'Idle'"),
    "minutes": ({"idle_minutes": -5}, "idle_minutes must be a number > 0, got -5"),
    "an hour": ({"at_hour": 24}, "at_hour must be an integer from 0 to 23, got 24"),
    "of two": ({"at_hour": 4, "idle_minutes": 0}, "idle_minutes must be a number > 0, got 0"),
    "a name": ({"idle_minute": 5}, "idle_minute is not a setting; did you mean idle_minutes?"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_policy_constructor_rejects_invalid_values(kind: str) -> None:
    given, why = WRONG[kind]
    with pytest.raises(InvalidInput, match=re.escape(why)):
        SessionResetPolicy(**given)
    if "name" not in kind:
        with pytest.raises(InvalidInput, match=re.escape(why)):
            GatewayConfig(default_reset_policy=given)
    with pytest.raises(InvalidInput, match=re.escape(why)):
        GatewayConfig(reset_by_platform={"telegram": given})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"session_store_max_age_days": "soon"},
            "must be a number of days, 0 to keep all, got 'soon'",
        ),
        (
            {"write_sessions_json": "maybe"},
            "write_sessions_json must be true or false, got 'maybe'",
        ),
        ({"reset_by_type": 5}, "reset_by_type must be a mapping of names to"),
        ({"default_reset_policy": "idle"}, "default_reset_policy must be a SessionResetPolicy"),
        (
            {"auto_continue_freshness_s": "x"},
            "auto_continue_freshness_s must be a number of seconds",
        ),
        ({"session_store_max_age_day": 5}, "did you mean session_store_max_age_days?"),
    ],
)
def test_config_constructor_rejects_invalid_values(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(why)):
        GatewayConfig(**given)


def test_config_keeps_settings_of_newer_gateway() -> None:
    config = GatewayConfig(of_the_future=5, default_reset_policy={"notify": True})
    assert config.to_dict()["of_the_future"] == 5
    assert config.to_dict()["default_reset_policy"]["notify"] is True


# Which policy a chat has


def make_policies() -> GatewayConfig:
    return GatewayConfig.from_dict(
        {
            "default_reset_policy": {"mode": "idle", "idle_minutes": 1},
            "reset_by_type": {"group": {"mode": "idle", "idle_minutes": 2}},
            "reset_by_platform": {"Telegram": {"mode": "none"}, "irc": {"mode": "daily"}},
        }
    )


def test_platform_policy_has_highest_priority() -> None:
    assert make_policies().get_reset_policy(Platform.TELEGRAM, "group").mode == "none"


def test_policy_lookup_accepts_platform_text() -> None:
    assert make_policies().get_reset_policy("telegram", "dm").mode == "none"


def test_plugin_platform_can_have_policy() -> None:
    assert make_policies().get_reset_policy("irc").mode == "daily"


def test_type_policy_has_second_priority() -> None:
    assert make_policies().get_reset_policy("slack", "group").idle_minutes == 2


@pytest.mark.parametrize("chat", [(), ("slack",), ("slack", "dm"), (None, None), ("", "")])
def test_default_policy_has_lowest_priority(chat: tuple[Any, ...]) -> None:
    assert make_policies().get_reset_policy(*chat).idle_minutes == 1


def test_broken_policy_keeps_other_policies() -> None:
    config = GatewayConfig.from_dict(
        {"reset_by_platform": {"slack": "daily", "irc": None, "signal": {"mode": "idle"}}}
    )
    modes = {name: policy.mode for name, policy in config.reset_by_platform.items()}
    assert modes == {"slack": "none", "irc": "none", "signal": "idle"}
    assert config.problems == ("reset_by_platform.slack cannot be 'daily'",)


# Round trips


def test_config_round_trip_keeps_unknown_keys() -> None:
    stored = {
        **DEFAULTS,
        "platforms": {"telegram": {"token": "t"}},
        "quick_commands": None,
        "default_reset_policy": {**POLICY, "flavour": [1]},
        "reset_by_platform": {"irc": {**POLICY, "mode": "weekly"}},
    }
    assert GatewayConfig.from_dict(stored).to_dict() == stored


def test_config_repr_hides_unknown_keys() -> None:
    assert "t0ken" not in repr(GatewayConfig.from_dict({"platforms": {"x": {"token": "t0ken"}}}))


@pytest.mark.parametrize("stored", [None, [], "x", 5])
def test_non_object_config_uses_defaults(stored: Any) -> None:
    assert GatewayConfig.from_dict(stored).to_dict() == DEFAULTS
    assert SessionResetPolicy.from_dict(stored).to_dict() == POLICY


text = st.text(max_size=6)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=4,
)
odd_policy = anything | st.dictionaries(st.sampled_from([*POLICY, "x"]), anything, max_size=4)
odd_config = st.dictionaries(st.sampled_from([*DEFAULTS, "x"]), anything, max_size=4)


@given(odd_config, odd_policy, odd_policy)
def test_config_round_trip_accepts_any_values(
    stored: dict[str, Any], default: Any, other: Any
) -> None:
    stored = {**stored, "default_reset_policy": default, "reset_by_platform": {"irc": other}}
    first = GatewayConfig.from_dict(stored).to_dict()
    assert GatewayConfig.from_dict(first).to_dict() == first


@given(odd_config, odd_policy)
def test_config_is_json_serializable(stored: dict[str, Any], default: Any) -> None:
    config = GatewayConfig.from_dict({**stored, "default_reset_policy": default})
    assert json.loads(json.dumps(config.to_dict())) == config.to_dict()


# Cost


def test_import_does_not_load_yaml() -> None:
    code = (
        "import sys, session_core, session_core.routing.policies, session_core.routing.entries\n"
        "print(sorted({'pydantic', 'yaml'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
