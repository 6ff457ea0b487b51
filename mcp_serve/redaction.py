"""Secrets are taken out of text on its way out: known shapes only, never by how random they look.

Text is looked at whole and cut afterwards. Where it was cut before, what only begins like a secret
at its end is taken out too.
"""

from __future__ import annotations

import re
from collections.abc import Callable

MARK = "[redacted"

Redact = Callable[[str], str]

_WORD = r"[A-Za-z0-9_\-]"

_BEGINNINGS: tuple[tuple[str, str, str, int], ...] = (
    ("aws key", r"\b(?:AKIA|ASIA|ABIA|ACCA)", r"[A-Z0-9]", 16),
    ("github token", r"\b(?:gh[pousr]_|github_pat_)", r"[A-Za-z0-9_]", 20),
    ("gitlab token", r"\bgl(?:pat|rt|ptt|dt|soat|cbt|ft|imt|agent|oas|ffct)-", r"[\w\-.]", 16),
    ("slack token", r"\bx(?:ox[abceoprs]|app)-(?:\d-)?", r"[A-Za-z0-9\-]", 10),
    ("slack webhook", r"https://hooks\.slack\.com/(?:services|workflows)/", r"[\w/+\-]", 20),
    ("discord webhook", r"https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/", r"[\w/\-]", 20),
    ("anthropic key", r"\bsk-ant-", _WORD, 16),
    ("openai key", r"\bsk-(?:proj-|svcacct-|admin-|or-v1-)?(?=[\w\-]{0,200}\d)", _WORD, 20),
    ("google key", r"\bAIza", _WORD, 35),
    ("google token", r"\bya29\.", r"[\w\-.]", 20),
    ("google secret", r"\bGOCSPX-", _WORD, 20),
    ("stripe key", r"\b(?:[sr]k_(?:live|test)|whsec)_", r"[A-Za-z0-9]", 16),
    ("square key", r"\bsq0(?:csp|atp|idp)-", _WORD, 22),
    ("twilio key", r"\b(?:SK|AC)(?=[0-9a-f]{32}\b)", r"[0-9a-f]", 32),
    ("sendgrid key", r"\bSG\.", r"[\w\-.]", 20),
    ("mailgun key", r"\bkey-(?=[0-9a-f]{32}\b)", r"[0-9a-f]", 32),
    ("npm token", r"\bnpm_", r"[A-Za-z0-9]", 30),
    ("pypi token", r"\bpypi-AgE", r"[\w\-]", 30),
    ("hugging face token", r"\bhf_", r"[A-Za-z0-9]", 30),
    ("digitalocean token", r"\bdo[opr]_v1_", r"[0-9a-f]", 32),
    ("shopify token", r"\bshp(?:at|ca|pa|ss)_", r"[0-9a-fA-F]", 30),
    ("databricks token", r"\bdapi", r"[0-9a-f\-]", 32),
    ("vault token", r"\bhv[sbr]\.", r"[\w\-.]", 20),
    ("doppler token", r"\bdp\.(?:pt|st|ct|sa|scim|audit)\.", r"[\w.]", 30),
    ("artifactory token", r"\bAKCp", r"[A-Za-z0-9]", 10),
    ("age key", r"\bAGE-SECRET-KEY-1", r"[A-Z0-9]", 20),
    ("json web token", r"\beyJ(?:(?!\beyJ)[\w\-])+\.eyJ", r"[\w\-.=]", 10),
)
"""Name, how it begins, of which characters it goes on, of how many at least."""

_BETWEEN: tuple[tuple[str, str], ...] = (
    (
        "private key",
        (
            r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
            r"(?:(?!-----BEGIN)[\s\S])*?(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|\Z)"
        ),
    ),
    ("telegram token", r"\b\d{8,10}:AA[\w\-]{32,36}"),
    ("discord token", r"\b[MNO][A-Za-z\d_-]{23,26}\.[\w-]{6}\.[\w-]{27,40}"),
    ("mailchimp key", r"\b[0-9a-f]{32}-us\d{1,2}\b"),
    ("azure key", r"(?i:AccountKey|SharedAccessKey)=[A-Za-z0-9+/]{40,90}={0,2}"),
    (
        "bearer token",
        (
            r"(?i:\bauthorization\\?[\"']?\s*[:=]\s*\\?[\"']?(?:bearer|token)\s+)"
            r"[\w\-.=+/~]{8,}"
        ),
    ),
    (
        "basic credentials",
        r"(?i:\bauthorization\\?[\"']?\s*[:=]\s*\\?[\"']?basic\s+)[A-Za-z0-9+/=]{8,}",
    ),
    ("password", r"(?<=://)[^\s/:@\"'<>]{1,100}:[^\s/@\"'<>]{1,200}(?=@)"),
    (
        "secret",
        (
            r"(?i:(?<![a-z0-9])(?:api_?key|secret(?:_?(?:access_?)?key)?|passwo?r?d|passwd|"
            r"access_?token|auth_?token|client_?secret|private_?key)\\?[\"']?\s*(?::=|=>|=|:)\s*)"
            r"(?:\\?\"[^\"\s]{6,200}\"|'[^'\s]{6,200}'|(?=[^\s\"'`,;]{0,200}\d)[^\s\"'`,;<>(){}\[\]$]{8,200})"
        ),
    ),
)

_HINTS = re.compile(
    r"AKIA|ASIA|ABIA|ACCA|AKCp|gh[pousr]_|github_pat|gl[a-z]{2,6}-|xox|xapp|hooks\.slack|webhooks|sk-|"
    r"AIza|ya29|GOCSPX|k_live|k_test|whsec|sq0|\bSK|\bAC[0-9a-f]|SG\.|key-|npm_|pypi-|hf_|_v1_|shp|"
    r"dapi|hv[sbr]\.|dp\.|AGE-SEC|eyJ|PRIVATE KEY|:AA|[MNO][\w-]{23,26}\.|-us\d|"
    r"(?i:accesskey|accountkey|authorization|://[^\s/]*@|api_?key|secret|passw|pwd|"
    r"token|private_?key)"
)
"""What every secret has in it; most text has none of that and is left at once."""


def _whole(beginning: str, goes_on: str, least: int) -> str:
    return f"{beginning}{goes_on}{{{least},}}"


_NAMES = [name for name, *_ in _BEGINNINGS] + [name for name, _ in _BETWEEN]
_SECRET = re.compile(
    "|".join(
        [f"({_whole(beginning, goes_on, least)})" for _, beginning, goes_on, least in _BEGINNINGS]
        + [f"({pattern})" for _, pattern in _BETWEEN]
    )
)
_OPEN = re.compile(
    "(?:"
    + "|".join(
        f"{beginning}{goes_on}*"
        for _, beginning, goes_on, _ in _BEGINNINGS
        if "(?=" not in beginning
    )
    + r"|\bsk-[\w\-]*|\b(?:SK|AC)[0-9a-f]{6,}|\bkey-[0-9a-f]{6,}"
    + r"|\b[0-9a-f]{16,32}(?:-(?:u(?:s\d?)?)?)?"
    + r"|\b[MNO](?=[\w\-]*\d)[\w\-]{11,26}(?:\.[\w\-]*){0,2}"
    + r"|-----BEGIN [^\n]*(?:[\s\S]*)|\beyJ[\w\-.]*|\b\d{8,10}:[\w\-]*"
    + r"|(?<=://)[^\s/:@]+:[^\s/@]*"
    + r"|(?i:(?:key|secret|passw\w*|token|authorization)[\"']?\s*[:=]\s*"
    + r"(?:bearer|basic)?\s*[\"']?)\S*"
    + r")(?P<end>(?:…|\.\.\.)?)\Z"
)


def redact(text: str) -> str:
    """Return a text with a mark in the place of each secret in it."""
    if not _HINTS.search(text):
        return text
    return _SECRET.sub(_mark, text)


def redact_cut(text: str) -> str:
    """Return a text that was cut, also without what only begins like a secret at its end."""
    shown = redact(text)
    if not shown.endswith(("…", "...")):
        return shown
    return _OPEN.sub(lambda found: f"{MARK}]{found['end']}", shown)


def keep(text: str) -> str:
    """Return a text as it is, where nothing is to be redacted."""
    return text


def spans(text: str) -> list[tuple[int, int]]:
    """Return where secrets are in a text."""
    if not _HINTS.search(text):
        return []
    return [found.span() for found in _SECRET.finditer(text)]


def _mark(found: re.Match[str]) -> str:
    return f"{MARK}: {_NAMES[(found.lastindex or 1) - 1]}]"
