"""Session keys of chats, and stored sources."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_core.chats import (
    Platform,
    SessionSource,
    build_session_key,
    check_session_id,
    check_session_key,
    get_key_platform,
    normalize_whatsapp_id,
)
from session_core.errors import InvalidInput


def telegram(chat_id: str = "-100", chat_type: str = "group", **more: Any) -> SessionSource:
    return SessionSource(platform="telegram", chat_id=chat_id, chat_type=chat_type, **more)


def discord(chat_id: str, chat_type: str, **more: Any) -> SessionSource:
    return SessionSource(platform="discord", chat_id=chat_id, chat_type=chat_type, **more)


def whatsapp(chat_id: str, chat_type: str, **more: Any) -> SessionSource:
    return SessionSource(platform="whatsapp", chat_id=chat_id, chat_type=chat_type, **more)


# The table


@pytest.mark.requirement("store:keys")
def test_direct_chat_has_own_key() -> None:
    assert build_session_key(telegram("42", "dm")) == "agent:main:telegram:dm:42"


@pytest.mark.requirement("store:keys")
def test_direct_chat_thread_has_own_key() -> None:
    source = telegram("42", "dm", thread_id="99")
    assert build_session_key(source) == "agent:main:telegram:dm:42:99"


@pytest.mark.requirement("store:keys")
def test_direct_message_without_chat_uses_user() -> None:
    assert build_session_key(telegram("", "dm", user_id="7")) == "agent:main:telegram:dm:7"


@pytest.mark.requirement("store:keys")
def test_direct_message_without_user_has_bare_key() -> None:
    assert build_session_key(telegram("", "dm")) == "agent:main:telegram:dm"


@pytest.mark.requirement("store:keys")
def test_group_users_have_own_keys() -> None:
    assert build_session_key(telegram(user_id="7")) == "agent:main:telegram:group:-100:7"


@pytest.mark.requirement("store:keys")
def test_group_users_can_share_key() -> None:
    key = build_session_key(telegram(user_id="7"), group_sessions_per_user=False)
    assert key == "agent:main:telegram:group:-100"


@pytest.mark.requirement("store:keys")
def test_group_thread_shares_key() -> None:
    source = telegram(thread_id="5", user_id="7")
    assert build_session_key(source) == "agent:main:telegram:group:-100:5"


@pytest.mark.requirement("store:keys")
def test_thread_users_can_have_own_keys() -> None:
    source = telegram(thread_id="5", user_id="7")
    key = build_session_key(source, thread_sessions_per_user=True)
    assert key == "agent:main:telegram:group:-100:5:7"


@pytest.mark.requirement("store:keys")
def test_thread_shares_key_in_shared_group() -> None:
    source = telegram(thread_id="5", user_id="7")
    key = build_session_key(source, group_sessions_per_user=False, thread_sessions_per_user=True)
    assert key == "agent:main:telegram:group:-100:5"


@pytest.mark.requirement("store:keys")
def test_alternative_user_id_takes_precedence() -> None:
    source = discord("C1", "channel", user_id="7", user_id_alt="ALT")
    assert build_session_key(source) == "agent:main:discord:channel:C1:ALT"


@pytest.mark.requirement("store:keys")
def test_thread_as_chat_appears_twice_in_key() -> None:
    source = discord("TH1", "thread", thread_id="TH1", user_id="7")
    assert build_session_key(source) == "agent:main:discord:thread:TH1:TH1"


@pytest.mark.requirement("store:keys")
def test_profile_has_key_namespace() -> None:
    key = build_session_key(telegram("42", "dm"), profile="coder")
    assert key == "agent:coder:telegram:dm:42"


@pytest.mark.requirement("store:keys")
def test_whatsapp_key_uses_person_id() -> None:
    source = whatsapp("60123456789:47@s.whatsapp.net", "dm")
    assert build_session_key(source) == "agent:main:whatsapp:dm:60123456789"


# Outside the table


@pytest.mark.parametrize("profile", [None, "", "default"])
def test_default_profile_is_main(profile: str | None) -> None:
    key = build_session_key(telegram("42", "dm"), profile=profile)
    assert key == "agent:main:telegram:dm:42"


def test_source_profile_is_not_in_key() -> None:
    assert build_session_key(telegram("42", "dm", profile="coder")) == "agent:main:telegram:dm:42"


def test_direct_message_without_chat_uses_thread() -> None:
    assert build_session_key(telegram("", "dm", thread_id="9")) == "agent:main:telegram:dm:9"


def test_whatsapp_group_id_is_not_canonicalized() -> None:
    source = whatsapp("123@g.us", "group", user_id="+60:2@lid")
    assert build_session_key(source) == "agent:main:whatsapp:group:123@g.us:60"


def test_whatsapp_id_uses_alias_map() -> None:
    source = whatsapp("999@lid", "dm")
    key = build_session_key(source, canonical_id={"999": "60123"}.__getitem__)
    assert key == "agent:main:whatsapp:dm:60123"


def test_whatsapp_bare_suffix_id_is_kept() -> None:
    assert build_session_key(whatsapp("", "dm", user_id="@lid")) == "agent:main:whatsapp:dm:@lid"


def test_empty_whatsapp_id_skips_lookup() -> None:
    assert normalize_whatsapp_id("+", {}.__getitem__) == ""


def test_slack_team_is_not_in_key() -> None:
    source = SessionSource(platform="slack", chat_id="C1", chat_type="dm", scope_id="T1")
    assert build_session_key(source) == "agent:main:slack:dm:C1"


def test_numeric_ids_become_text_in_key() -> None:
    source = SessionSource(platform="telegram", chat_id=-100, chat_type="group", user_id=7)  # type: ignore[arg-type]
    assert build_session_key(source) == "agent:main:telegram:group:-100:7"


def test_platform_is_third_key_part() -> None:
    assert get_key_platform("agent:main:telegram:dm:42") == "telegram"


def test_short_key_has_no_platform() -> None:
    assert get_key_platform("agent:main") == ""


# Platforms


def test_platform_equals_string() -> None:
    assert str(Platform.TELEGRAM) == f"{Platform.TELEGRAM}" == "telegram"


def test_platform_ignores_case() -> None:
    assert SessionSource(platform=" Telegram ", chat_id="1").platform is Platform.TELEGRAM


def test_plugin_platform_is_string() -> None:
    assert SessionSource(platform="IRC", chat_id="1").platform == "irc"


def test_known_platforms_are_complete() -> None:
    known = (
        "local telegram discord whatsapp whatsapp_cloud slack signal mattermost matrix "
        "homeassistant email sms dingtalk api_server webhook msgraph_webhook feishu wecom "
        "wecom_callback weixin bluebubbles qqbot yuanbao relay"
    )
    assert [platform.value for platform in Platform] == known.split()


# Stored sources

ALWAYS = {
    "platform": "telegram",
    "chat_id": "-100",
    "chat_name": None,
    "chat_type": "group",
    "user_id": None,
    "user_name": None,
    "thread_id": None,
    "chat_topic": None,
}
IF_SET = {
    "user_id_alt": "U",
    "chat_id_alt": "C",
    "scope_id": "S",
    "guild_id": "S",
    "parent_chat_id": "P",
    "message_id": "M",
    "profile": "coder",
    "auto_thread_created": True,
    "auto_thread_initial_name": "N",
}


def test_source_always_stores_eight_fields() -> None:
    assert list(telegram().to_dict().items()) == list(ALWAYS.items())


def test_optional_source_fields_keep_order() -> None:
    more = {name: value for name, value in IF_SET.items() if name != "guild_id"}
    assert list(telegram(**more).to_dict().items()) == list({**ALWAYS, **IF_SET}.items())


@pytest.mark.parametrize("name", [name for name in IF_SET if name not in ("scope_id", "guild_id")])
def test_optional_source_field_round_trips(name: str) -> None:
    stored = {**ALWAYS, name: IF_SET[name]}
    assert SessionSource.from_dict(stored).to_dict() == stored


def test_guild_id_is_read_as_scope() -> None:
    assert SessionSource.from_dict({**ALWAYS, "guild_id": "G"}).scope_id == "G"


def test_scope_id_precedes_guild_id() -> None:
    source = SessionSource.from_dict({**ALWAYS, "guild_id": "G", "scope_id": "S"})
    assert (source.scope_id, source.guild_id) == ("S", "S")


def test_unknown_source_fields_are_kept() -> None:
    stored = {**ALWAYS, "flavour": {"of": ["the", "month"]}}
    assert SessionSource.from_dict(stored).to_dict() == stored


@pytest.mark.parametrize("missing", ["platform", "chat_id"])
def test_origin_requires_platform_and_chat(missing: str) -> None:
    stored = {name: value for name, value in ALWAYS.items() if name != missing}
    with pytest.raises(InvalidInput, match="origin must have"):
        SessionSource.from_dict(stored)


@pytest.mark.parametrize("platform", [None, "", 5, True])
def test_platform_must_be_text(platform: object) -> None:
    with pytest.raises(InvalidInput):
        SessionSource.from_dict({**ALWAYS, "platform": platform})


def test_source_without_chat_round_trips() -> None:
    source = SessionSource(platform="local", chat_id=None)  # type: ignore[arg-type]
    assert SessionSource.from_dict(source.to_dict()) == source


def test_numeric_chat_id_becomes_text() -> None:
    assert SessionSource.from_dict({**ALWAYS, "chat_id": -100}).chat_id == "-100"


def test_source_copy_is_independent() -> None:
    source = SessionSource.from_dict({**ALWAYS, "more": 1})
    copy = source.copy()
    copy.extra["more"], copy.chat_id = 2, "0"
    assert (source.extra, source.chat_id) == ({"more": 1}, "-100")


text = st.text(max_size=8)
maybe = st.none() | text
values = st.recursive(
    st.none() | st.booleans() | st.integers() | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=4,
)
sources = st.builds(
    SessionSource,
    platform=st.sampled_from([*Platform, "irc"]),
    chat_id=text,
    chat_type=st.sampled_from(["dm", "group", "channel", "thread"]),
    auto_thread_created=st.booleans(),
    **dict.fromkeys(
        ["chat_name", "user_id", "user_name", "thread_id", "chat_topic"],
        maybe,
    ),
    **dict.fromkeys(
        [
            "user_id_alt",
            "chat_id_alt",
            "scope_id",
            "parent_chat_id",
            "message_id",
            "profile",
            "auto_thread_initial_name",
        ],
        st.none() | st.text(min_size=1, max_size=8),
    ),
    extra=st.dictionaries(st.text("xyz", min_size=1, max_size=4), values, max_size=2),
)


@given(sources)
def test_random_source_round_trips(source: SessionSource) -> None:
    assert SessionSource.from_dict(source.to_dict()) == source


@given(sources, st.booleans(), st.booleans())
def test_session_key_begins_with_platform_and_type(
    source: SessionSource, per_user: bool, per_thread: bool
) -> None:
    key = build_session_key(source, per_user, per_thread)
    assert key.startswith(f"agent:main:{source.platform}:{source.chat_type}")
    assert get_key_platform(key) == str(source.platform)


# Parts of file names


@pytest.mark.parametrize("name", ["a..b", "..", "C:x", "d:", "é:x"])
@pytest.mark.parametrize("check", [check_session_id, check_session_key])
def test_unsafe_id_or_key_is_refused(check: Any, name: str) -> None:
    with pytest.raises(InvalidInput):
        check(name)


@pytest.mark.parametrize("name", ["/x", "\\x"])
def test_absolute_path_key_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_session_key(name)


@pytest.mark.parametrize("name", ["a/b", "/x", "a\\b"])
def test_path_as_session_id_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_session_id(name)


@pytest.mark.parametrize("name", ["a\0b", "a\ud83d", "\udc00"])
def test_unencodable_session_id_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="surrogates"):
        check_session_id(name)


@pytest.mark.parametrize("name", ["", None, 5, ["x"]])
@pytest.mark.parametrize("check", [check_session_id, check_session_key])
def test_non_text_id_or_key_is_refused(check: Any, name: object) -> None:
    with pytest.raises(InvalidInput):
        check(name)


@pytest.mark.parametrize("key", ["agent:main:google_chat:group:spaces/X", "agent:main:x:a\\b"])
def test_session_key_can_contain_path(key: str) -> None:
    assert check_session_key(key) == key


def test_usual_session_id_is_accepted() -> None:
    assert check_session_id("20260101_000000_abcd1234") == "20260101_000000_abcd1234"
