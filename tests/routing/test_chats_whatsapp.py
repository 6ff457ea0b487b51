"""WhatsApp ids of one person: the files of the bridge and the session keys."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionSource, SessionStore
from session_core.chats import WhatsAppAliases

PHONE, LID = "60123456789", "999999999999999"


@pytest.fixture
def bridge(home_path: Path) -> Path:
    """The folder of the bridge."""
    folder = home_path / "platforms" / "whatsapp" / "session"
    folder.mkdir(parents=True)
    return folder


def write_alias_file(bridge: Path, whatsapp_id: str, mapped: Any, suffix: str = "") -> Path:
    """Write the id that another id stands for."""
    path = bridge / f"lid-mapping-{whatsapp_id}{suffix}.json"
    path.write_text(json.dumps(mapped))
    return path


def get_key_suffix(store: SessionStore, chat_id: str, **fields: Any) -> str:
    """Return the part of a session key after the platform."""
    source = SessionSource(platform="whatsapp", chat_id=chat_id, **fields)
    return store.get_session_key(source).removeprefix("agent:main:whatsapp:")


@pytest.mark.requirement("store:whatsapp")
def test_person_has_same_key_for_both_ids(make: Any, bridge: Path) -> None:
    write_alias_file(bridge, PHONE, f"{LID}@lid")
    write_alias_file(bridge, LID, f"{PHONE}@s.whatsapp.net", "_reverse")
    store = make()
    assert {get_key_suffix(store, user_id) for user_id in (f"{LID}:7@lid", f"+{PHONE}")} == {
        f"dm:{PHONE}"
    }


@pytest.mark.requirement("store:whatsapp")
def test_group_member_has_same_key_for_ids(make: Any, bridge: Path) -> None:
    write_alias_file(bridge, LID, PHONE, "_reverse")
    store = make()
    group = {"chat_id": "77@g.us", "chat_type": "group"}
    assert {
        get_key_suffix(store, **group, user_id=user_id) for user_id in (f"{LID}@lid", PHONE)
    } == {f"group:77@g.us:{PHONE}"}


def test_alias_map_applies_to_whatsapp_only(make: Any, bridge: Path) -> None:
    write_alias_file(bridge, "999", "1")
    source = SessionSource(platform="telegram", chat_id="999")
    assert make().get_session_key(source) == "agent:main:telegram:dm:999"


def test_alias_map_is_read_from_database_home(hermes: Any, bridge: Path, tmp_path: Path) -> None:
    write_alias_file(bridge, LID, PHONE)
    with SessionStore(tmp_path / "elsewhere" / "sessions", db=hermes) as store:
        assert get_key_suffix(store, f"{LID}@lid") == f"dm:{PHONE}"


def test_alias_chain_and_cycle_are_followed(home_path: Path, bridge: Path) -> None:
    for whatsapp_id, other in (("3333", "2222"), ("2222", "111"), ("111", "3333")):
        write_alias_file(bridge, whatsapp_id, other)
    aliases = WhatsAppAliases(home_path)
    assert {aliases.find_canonical(whatsapp_id) for whatsapp_id in ("3333", "2222", "111")} == {
        "111"
    }


def test_equal_length_aliases_use_first_in_order(home_path: Path, bridge: Path) -> None:
    write_alias_file(bridge, "22", "11")
    assert WhatsAppAliases(home_path).find_canonical("22") == "11"


@pytest.mark.parametrize("mapped", ["", None, [], {"id": "1"}, True], ids=str)
def test_empty_alias_map_keeps_id(home_path: Path, bridge: Path, mapped: Any) -> None:
    write_alias_file(bridge, "999", mapped)
    assert WhatsAppAliases(home_path).find_canonical("999") == "999"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000], ids=len)
def test_unreadable_alias_map_keeps_id(home_path: Path, bridge: Path, content: bytes) -> None:
    (bridge / "lid-mapping-999.json").write_bytes(content)
    assert WhatsAppAliases(home_path).find_canonical("999") == "999"


@pytest.mark.parametrize("unsafe_id", ["../999", "a/b", "a\\b", "\u0669", "a\x00b", ""])
def test_unsafe_id_skips_alias_lookup(home_path: Path, bridge: Path, unsafe_id: str) -> None:
    write_alias_file(bridge.parent, "999", "1")
    assert WhatsAppAliases(home_path).find_canonical(unsafe_id) == unsafe_id


def test_changed_alias_map_is_reread(home_path: Path, bridge: Path) -> None:
    aliases = WhatsAppAliases(home_path)
    assert aliases.find_canonical("999") == "999"
    path = write_alias_file(bridge, "999", "11")
    assert aliases.find_canonical("999") == "11"
    path.write_text('"22"')
    os.utime(path, (1, 1))
    assert aliases.find_canonical("999") == "22"


def test_unchanged_alias_map_is_not_reread(home_path: Path, bridge: Path) -> None:
    path = write_alias_file(bridge, "999", "11")
    os.utime(path, (1, 1))
    aliases = WhatsAppAliases(home_path)
    assert aliases.find_canonical("999") == "11"
    path.write_text('"22"')
    os.utime(path, (1, 1))
    assert aliases.find_canonical("999") == "11"


@pytest.mark.requirement("store:whatsapp")
@pytest.mark.parametrize(("has_legacy_alias", "canonical_id"), [(True, "22"), (False, "11")])
def test_non_empty_legacy_alias_folder_takes_precedence(
    home_path: Path, bridge: Path, has_legacy_alias: bool, canonical_id: str
) -> None:
    write_alias_file(bridge, "999", "11")
    older = home_path / "whatsapp" / "session"
    older.mkdir(parents=True)
    if has_legacy_alias:
        write_alias_file(older, "999", "22")
    assert WhatsAppAliases(home_path).find_canonical("999") == canonical_id
