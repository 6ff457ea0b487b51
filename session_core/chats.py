"""Which chat a message comes from, and the key under which its session is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from session_core.errors import InvalidInput


class Platform(str, Enum):
    """The platforms that are known by name; any other string is one of a plugin."""

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


def parse_platform(given: Platform | str) -> Platform | str:
    """Return the platform that a string names in any case; one of a plugin is a string."""
    name = str(given).strip().lower()
    try:
        return Platform(name)
    except ValueError:
        return name


def normalize_text(stored: Any) -> str | None:
    """Return a stored text or number as text: an id is a number in some files."""
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
    """Where a message comes from; what it does not know by name it keeps in `extra`."""

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
            raise InvalidInput("a source has a platform; one of a plugin is any name")
        self.platform = parse_platform(self.platform)
        self.chat_id = normalize_text(self.chat_id) or ""

    @property
    def guild_id(self) -> str | None:
        """The older name of `scope_id`, under which it is stored too."""
        return self.scope_id

    def copy(self) -> SessionSource:
        """Return a source that can be changed without changing this one."""
        return replace(self, extra=dict(self.extra))

    def to_dict(self) -> dict[str, Any]:
        """Return what is stored: some fields always, the others only where they say something."""
        stored = {name: getattr(self, name) for name in _REQUIRED_FIELDS}
        stored["platform"] = str(self.platform)
        stored |= {name: value for name in _OPTIONAL_FIELDS if (value := getattr(self, name))}
        return stored | self.extra | stored

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> SessionSource:
        """Return the source that was stored.

        Raises:
            InvalidInput: it has no platform or no chat.
        """
        given = dict(stored)
        platform = given.get("platform")
        if not isinstance(platform, str) or not platform.strip() or "chat_id" not in given:
            raise InvalidInput("an origin needs a platform and a chat_id")
        threaded = bool(given.pop("auto_thread_created", False))
        known: dict[str, Any] = {
            name: normalize_text(given.pop(name, None))
            for name in (*_REQUIRED_FIELDS, *_OPTIONAL_FIELDS)
            if name != "auto_thread_created"
        }
        guild = known.pop("guild_id")
        known["scope_id"] = known["scope_id"] or guild
        known["chat_type"] = known["chat_type"] or "dm"
        return cls(**known, auto_thread_created=threaded, extra=given)


def build_session_key(
    source: SessionSource,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    profile: str | None = None,
    canonical_id: Callable[[str], str] | None = None,
) -> str:
    """Return the key of the session of a chat.

    A direct chat has one; so has a thread, which its participants share; in a group every user has
    one. The profile is a part of it only where one is given, whatever the source says: a gateway
    that serves a single profile has none in its keys. `canonical_id` maps a WhatsApp id to the one
    that stands for the same person.
    """
    parts = ["agent", profile if profile and profile != "default" else "main"]
    parts += [str(source.platform), source.chat_type]
    user = source.user_id_alt or source.user_id
    chat = source.chat_id
    if source.platform == Platform.WHATSAPP:
        user = user and (normalize_whatsapp_id(user, canonical_id) or user)
        if source.chat_type == "dm":  # the id of a group is nobody's, and stays as it is
            chat = chat and normalize_whatsapp_id(chat, canonical_id)
    if source.chat_type == "dm":
        parts += _drop_empty(chat or user, source.thread_id)
    else:
        shared = not group_sessions_per_user or (source.thread_id and not thread_sessions_per_user)
        parts += _drop_empty(chat, source.thread_id, None if shared else user)
    return ":".join(parts)


def _drop_empty(*ids: str | None) -> list[str]:
    return [str(given) for given in ids if given]


def normalize_whatsapp_id(given: str, mapped: Callable[[str], str] | None = None) -> str:
    """Return the id of a person on WhatsApp without sign, device and domain."""
    bare = str(given).strip().replace("+", "").split(":", 1)[0].split("@", 1)[0]
    return mapped(bare) if mapped and bare else bare


def get_key_platform(session_key: str) -> str:
    """Return the platform in a key, for logs and hooks; keys cannot be taken apart in general."""
    parts = session_key.split(":")
    return parts[2] if len(parts) > 2 else ""  # noqa: PLR2004 -- agent, profile, platform


def get_key_profile(session_key: str) -> str:
    """Return the profile in a key, which is `main` for the default one; nothing where none is."""
    parts = session_key.split(":")
    return parts[1] if len(parts) > 1 and parts[0] == "agent" else ""


def check_session_id(session_id: str) -> str:
    """Return an id that may become part of a file name.

    Raises:
        InvalidInput: it would leave its folder, or no file, database or environment takes it.
    """
    if not _is_inside_folder(session_id) or "/" in session_id or "\\" in session_id:
        raise InvalidInput(
            "a session id is text without '..', '/' and a backslash, not a path with a drive"
        )
    if "\0" in session_id or any("\ud800" <= char <= "\udfff" for char in session_id):
        raise InvalidInput("a session id is text without a NUL or half a character")
    return session_id


def check_session_key(session_key: str) -> str:
    """Return a key that may become part of a file name; some platforms have '/' inside theirs.

    Raises:
        InvalidInput: it would leave its folder.
    """
    if not _is_inside_folder(session_key) or session_key[0] in "/\\":
        raise InvalidInput(
            "a session key is text without '..' that begins with no '/', backslash or drive"
        )
    return session_key


def _is_inside_folder(name: Any) -> bool:
    if not isinstance(name, str) or not name or ".." in name:
        return False
    return not (name[0].isalpha() and name[1:2] == ":")
