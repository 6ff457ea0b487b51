"""The source of a message, session keys, ids that are safe in file names, and WhatsApp aliases.

The WhatsApp bridge of a Hermes home records the ids of one person in two files for each id:
`lid-mapping-ID.json` with the mapped id, and `lid-mapping-ID_reverse.json` for the way
back. The shortest of all connected ids represents the person.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from session_core._atomic import read_file
from session_core.errors import InvalidInput


class Platform(str, Enum):
    """The known platforms.

    A platform of a plugin is any other string.
    """

    LOCAL = "local"
    TELEGRAM = "telegram"
    DISCORD = "discord"
    WHATSAPP = "whatsapp"
    WHATSAPP_CLOUD = "whatsapp_cloud"
    SLACK = "slack"
    SIGNAL = "signal"
    MATTERMOST = "mattermost"
    MATRIX = "matrix"
    HOMEASSISTANT = "homeassistant"
    EMAIL = "email"
    SMS = "sms"
    DINGTALK = "dingtalk"
    API_SERVER = "api_server"
    WEBHOOK = "webhook"
    MSGRAPH_WEBHOOK = "msgraph_webhook"
    FEISHU = "feishu"
    WECOM = "wecom"
    WECOM_CALLBACK = "wecom_callback"
    WEIXIN = "weixin"
    BLUEBUBBLES = "bluebubbles"
    QQBOT = "qqbot"
    YUANBAO = "yuanbao"
    RELAY = "relay"

    def __str__(self) -> str:
        return self.value


def parse_platform(value: Platform | str) -> Platform | str:
    """Return the platform of a name in any case, or an unknown name as a string."""
    name = str(value).strip().lower()
    try:
        return Platform(name)
    except ValueError:
        return name


def convert_to_text(stored: Any) -> str | None:
    """Return a stored text or number as text.

    Some files store ids as numbers.
    """
    if isinstance(stored, bool) or not isinstance(stored, (str, int, float)):
        return None
    return str(stored)


_REQUIRED_FIELDS = (
    "platform",
    "chat_id",
    "chat_name",
    "chat_type",
    "user_id",
    "user_name",
    "thread_id",
    "chat_topic",
)
_OPTIONAL_FIELDS = (
    "user_id_alt",
    "chat_id_alt",
    "scope_id",
    "guild_id",
    "parent_chat_id",
    "message_id",
    "profile",
    "auto_thread_created",
    "auto_thread_initial_name",
)


@dataclass(slots=True)
class SessionSource:
    """The source of a message: its platform, chat and sender.

    The session store derives the session key from it. Only `platform` and `chat_id` are required.
    `chat_type` is `dm` for a direct chat, or for example `group`. Unknown fields of a stored source
    are kept in `extra`.

    Example:
        >>> from session_core import SessionSource, build_session_key
        >>> build_session_key(SessionSource(platform="telegram", chat_id="42"))
        'agent:main:telegram:dm:42'
    """

    platform: Platform | str
    chat_id: str
    chat_name: str | None = None
    chat_type: str = "dm"
    user_id: str | None = None
    user_name: str | None = None
    thread_id: str | None = None
    chat_topic: str | None = None
    user_id_alt: str | None = None
    chat_id_alt: str | None = None
    scope_id: str | None = None
    parent_chat_id: str | None = None
    message_id: str | None = None
    profile: str | None = None
    auto_thread_created: bool = False
    auto_thread_initial_name: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.platform, str) or not self.platform.strip():
            raise InvalidInput(
                f"platform must be a Platform or a name of a plugin, got {self.platform!r}"
            )
        self.platform = parse_platform(self.platform)
        self.chat_id = convert_to_text(self.chat_id) or ""

    @property
    def guild_id(self) -> str | None:
        """The older name of `scope_id`, stored next to it."""
        return self.scope_id

    def copy(self) -> SessionSource:
        """Return an independent copy."""
        return replace(self, extra=dict(self.extra))

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form, with the optional fields that have a value."""
        stored = {name: getattr(self, name) for name in _REQUIRED_FIELDS}
        stored["platform"] = str(self.platform)
        stored |= {name: value for name in _OPTIONAL_FIELDS if (value := getattr(self, name))}
        # First for the order of the fields, and last so that `extra` replaces none of them.
        return stored | self.extra | stored

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> SessionSource:
        """Return the source of a stored form.

        Raises:
            InvalidInput: the platform or the chat id is missing.
        """
        extra_fields = dict(stored)
        platform = extra_fields.get("platform")
        if not isinstance(platform, str) or not platform.strip() or "chat_id" not in extra_fields:
            raise InvalidInput("origin must have a platform and a chat_id")
        is_auto_thread = bool(extra_fields.pop("auto_thread_created", False))
        fields: dict[str, Any] = {
            name: convert_to_text(extra_fields.pop(name, None))
            for name in (*_REQUIRED_FIELDS, *_OPTIONAL_FIELDS)
            if name != "auto_thread_created"
        }
        # An older entry may have only the older name.
        guild_id = fields.pop("guild_id")
        fields["scope_id"] = fields["scope_id"] or guild_id
        fields["chat_type"] = fields["chat_type"] or "dm"
        return cls(**fields, auto_thread_created=is_auto_thread, extra=extra_fields)


def build_session_key(
    source: SessionSource,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    profile: str | None = None,
    canonical_id: Callable[[str], str] | None = None,
) -> str:
    """Return the session key of a chat.

    A direct chat has one session, a thread has one session that its participants share, and a group
    has one session for each user.

    Args:
        source: the chat and the sender of a message.
        group_sessions_per_user: False if the users of a group share a session.
        thread_sessions_per_user: True if each user of a thread has a session.
        profile: the profile in the key. Without it, the key has no profile, even if the source has
            a profile: a gateway with a single profile has no profile in its keys.
        canonical_id: a function that maps a WhatsApp id to the id that represents the same person.

    Example:
        >>> from session_core import SessionSource, build_session_key
        >>> group = SessionSource("slack", "C7", chat_type="group", user_id="ann")
        >>> build_session_key(group)
        'agent:main:slack:group:C7:ann'
    """
    # The format is that of Hermes, which reads and writes the same keys.
    parts = ["agent", profile if profile and profile != "default" else "main"]
    parts += [str(source.platform), source.chat_type]
    user = source.user_id_alt or source.user_id
    chat = source.chat_id
    if source.platform == Platform.WHATSAPP:
        user = user and (normalize_whatsapp_id(user, canonical_id) or user)
        if source.chat_type == "dm":  # the id of a group is not the id of a person
            chat = chat and normalize_whatsapp_id(chat, canonical_id)
    if source.chat_type == "dm":
        parts += _drop_empty(chat or user, source.thread_id)
    else:
        shared = not group_sessions_per_user or (source.thread_id and not thread_sessions_per_user)
        parts += _drop_empty(chat, source.thread_id, None if shared else user)
    return ":".join(parts)


def _drop_empty(*ids: str | None) -> list[str]:
    return [str(value) for value in ids if value]


def normalize_whatsapp_id(user_id: str, mapped: Callable[[str], str] | None = None) -> str:
    """Return the WhatsApp id of a person without sign, device and domain."""
    bare = str(user_id).strip().replace("+", "").split(":", 1)[0].split("@", 1)[0]
    return mapped(bare) if mapped and bare else bare


def get_key_platform(session_key: str) -> str:
    """Return the platform in a session key, for logs and hooks.

    Session keys cannot be split in general, because ids may contain colons.
    """
    parts = session_key.split(":")
    return parts[2] if len(parts) > 2 else ""  # noqa: PLR2004 -- a key begins with agent, profile and platform


def get_key_profile(session_key: str) -> str:
    """Return the profile in a session key, `main` for the default one, or an empty string."""
    parts = session_key.split(":")
    return parts[1] if len(parts) > 1 and parts[0] == "agent" else ""


def check_session_id(session_id: str) -> str:
    """Return a session id after checking that it is safe in a file name.

    Raises:
        InvalidInput: the id would leave its folder, or cannot be stored in files, databases or the
            environment.
    """
    if not _is_safe_path_part(session_id) or "/" in session_id or "\\" in session_id:
        raise InvalidInput(
            "session id must be text without '..', '/', backslash and drive letter, "
            f"got {session_id!r}"
        )
    if "\0" in session_id or any("\ud800" <= char <= "\udfff" for char in session_id):
        raise InvalidInput("session id must be text without NUL and lone surrogates")
    return session_id


def check_session_key(session_key: str) -> str:
    """Return a session key after checking that it is safe.

    Keys of some platforms contain '/'.

    Raises:
        InvalidInput: the key would leave its folder.
    """
    if not _is_safe_path_part(session_key) or session_key[0] in "/\\":
        raise InvalidInput(
            "session key must be text without '..' and must not begin with '/', a backslash or "
            f"a drive letter, got {session_key!r}"
        )
    return session_key


def _is_safe_path_part(name: Any) -> bool:
    if not isinstance(name, str) or not name or ".." in name:
        return False
    # On Windows a drive letter leaves the folder.
    return not (name[0].isalpha() and name[1:2] == ":")


_SAFE_ID = re.compile(r"[A-Za-z0-9@.+-]+")
"""Ids that may be part of a file name."""

_FILE_SUFFIXES = ("", "_reverse")

Stamp = tuple[int, int]


class WhatsAppAliases:
    """The WhatsApp ids of one home.

    A file is read again only after a change.
    """

    def __init__(self, home: Path) -> None:
        self._older = home / "whatsapp" / "session"
        self._newer = home / "platforms" / "whatsapp" / "session"
        self._read: dict[str, tuple[Stamp, str]] = {}

    def find_canonical(self, whatsapp_id: str) -> str:
        """Return the id that represents the person with an id."""
        folder = self._find_folder()
        connected_ids: set[str] = set()
        pending_ids = [whatsapp_id]
        while pending_ids:
            current_id = pending_ids.pop()
            # The files may form a circle, and an id that they name becomes part of a path.
            if current_id not in connected_ids and _SAFE_ID.fullmatch(current_id):
                connected_ids.add(current_id)
                pending_ids += [
                    self._read_mapped_id(f"{folder}/lid-mapping-{current_id}{suffix}.json")
                    for suffix in _FILE_SUFFIXES
                ]
        # The text decides between ids of one length, so that every process chooses the same.
        return min(
            connected_ids, key=lambda current_id: (len(current_id), current_id), default=whatsapp_id
        )

    def _find_folder(self) -> Path:
        """Return the older folder of the bridge if it has files, else the newer one."""
        with suppress(OSError), os.scandir(self._older) as entries:
            if next(entries, None) is not None:
                return self._older
        return self._newer

    def _read_mapped_id(self, path: str) -> str:
        """Return the id in a file, or an empty string."""
        try:
            stat = os.stat(path)  # noqa: PTH116 -- os.stat avoids building a Path
        except (OSError, ValueError):
            return ""
        stamp = stat.st_mtime_ns, stat.st_size
        cached = self._read.get(path)
        if cached is None or cached[0] != stamp:
            self._read[path] = cached = stamp, _parse_id_file(path)
        return cached[1]


def _parse_id_file(path: str) -> str:
    try:
        stored = json.loads(read_file(Path(path)))
    except (OSError, ValueError, RecursionError):
        return ""
    return normalize_whatsapp_id(convert_to_text(stored) or "")
