"""What secrets look like: how each kind begins and goes on, and what stands in every one of it.

A hint has to stand in each secret of its kind: where none does, the pattern is not tried at all.
"""

from __future__ import annotations

_WORD = r"[A-Za-z0-9_\-]"
_NAME = r"[A-Za-z0-9_\-.]"

START = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[abfnrtv]|[\[;0-9][mK])|(?<=%[0-9A-Fa-f]{2})"
    r"|(?<=\\x[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4}))"
)
"""Where a word begins: behind no other of its script, an escape, or a colour of a terminal."""

_PHRASE = (
    r"(?:passwo?r?[dt]|passphrase|passcode|kennwort|mot de passe|contrase(?:ñ|n)a|senha|пароль"
    r"|密码|密碼|パスワード|비밀번호)"
)
_PHRASES = (
    "passw passphrase passcode kennwort passe contrase senha пароль 密码 密碼 パスワード 비밀번호"
)
_NAMED = (
    r"(?:(?:api|app|auth|service|account|client|encryption|signing|private)[_-]?key"
    r"|secret(?:[_-]?(?:access[_-]?)?key)?|client[_-]?secret"
    r"|(?:access|auth|refresh|api|bot|session)[_-]?token)"
)
_SAYS = r"[\\\"']{0,8}\s*(?::=|=>|=|%3d|[:\uff1a])"
_VALUE = (
    r"(?:\\{0,7}\"[^\"\s]{6,200}\"|'[^'\s]{6,200}'"
    r"|\\?[\"'`]?(?=[^\s\"'`,;]{0,200}\d)[^\s\"'`,;<>(){}\[\]$][^\s\"'`,;<>(){}\[\]]{7,200})"
)
"""A value that is a secret by what stands before it: quoted, or with a digit in it."""

# Each sign is read in one way alone: what could be read in two would take for ever where it fails.
_HEADER = r"[A-Z][A-Za-z-]{2,30}: [^\n\\]{0,200}(?=[\n\\])"
_BREAK = r"(?:[\s\"'\\,+]|(?<=\\)[nrt])"

BEGINNINGS: tuple[tuple[str, str, str, int], ...] = (
    ("aws key", r"(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])", r"[A-Z0-9]", 16),
    ("github token", r"(?:gh[pousr]_|github_pat_)", r"[A-Za-z0-9_]", 20),
    ("gitlab token", r"gl(?:pat|rt|ptt|dt|soat|cbt|ft|imt|agent|oas|ffct)-", _NAME, 16),
    ("gitlab runner token", r"GR1348941", _WORD, 16),
    ("slack token", r"x(?:ox[abceoprs]|app)-(?:\d-)?", r"[A-Za-z0-9\-]", 10),
    ("slack webhook", r"https://hooks\.slack\.com/(?:services|workflows)/", r"[\w/+\-]", 20),
    ("discord webhook", r"https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/", r"[\w/\-]", 20),
    ("anthropic key", r"sk-ant-", _WORD, 16),
    ("openai key", r"sk-(?:proj-|svcacct-|admin-|or-v1-)?(?=[\w\-]{0,200}\d)", _WORD, 20),
    ("google key", r"AIza", _WORD, 35),
    ("google token", r"ya29\.", _NAME, 20),
    ("google secret", r"GOCSPX-", _WORD, 20),
    ("stripe key", r"(?:[sr]k_(?:live|test)|whsec)_", r"[A-Za-z0-9]", 16),
    ("square key", r"sq0(?:csp|atp|idp)-", _WORD, 22),
    ("twilio key", r"(?:SK|AC)(?=[0-9a-f]{32}(?![0-9a-fA-F]))", r"[0-9a-f]", 32),
    ("sendgrid key", r"SG\.", _NAME, 20),
    ("mailgun key", r"(?<!-)key-(?=[0-9a-f]{32}(?![0-9a-fA-F]))", r"[0-9a-f]", 32),
    ("npm token", r"npm_", r"[A-Za-z0-9]", 30),
    ("pypi token", r"pypi-AgE", _WORD, 30),
    ("hugging face token", r"hf_", r"[A-Za-z0-9]", 30),
    ("digitalocean token", r"do[opr]_v1_", r"[0-9a-f]", 32),
    ("shopify token", r"shp(?:at|ca|pa|ss)_", r"[0-9a-fA-F]", 30),
    ("databricks token", r"dapi", r"[0-9a-f\-]", 32),
    ("vault token", r"hv[sbr]\.", _NAME, 20),
    ("doppler token", r"dp\.(?:pt|st|ct|sa|scim|audit)\.", _NAME, 30),
    ("artifactory token", r"AKC(?=[A-Za-z0-9]{0,80}\d)", r"[A-Za-z0-9]", 10),
    ("softlayer key", r"https?://api\.softlayer\.com/soap/v3(?:\.1)?/", r"[A-Za-z0-9]", 32),
    ("age key", r"AGE-SECRET-KEY-1", r"[A-Z0-9]", 20),
    ("json web token", r"eyJ(?:(?!\beyJ)[\w\-])+\.eyJ", r"[A-Za-z0-9_\-.=]", 10),
    ("groq key", r"gsk_", r"[A-Za-z0-9]", 40),
    ("xai key", r"xai-", r"[A-Za-z0-9]", 40),
    ("replicate token", r"r8_", r"[A-Za-z0-9]", 30),
    ("perplexity key", r"pplx-", r"[A-Za-z0-9]", 32),
    ("nvidia key", r"nvapi-", _WORD, 40),
    ("tavily key", r"tvly-", _WORD, 20),
    ("grafana token", r"gl(?:sa|c)_", r"[A-Za-z0-9_+/=]", 30),
    ("atlassian token", r"ATATT3x", r"[A-Za-z0-9_\-=]", 40),
    ("docker token", r"dckr_(?:pat|oat)_", _WORD, 20),
    ("linear key", r"lin_(?:api|oauth)_", r"[A-Za-z0-9]", 30),
    ("notion token", r"ntn_", r"[A-Za-z0-9]", 40),
)
"""Name, how it begins, of which characters it goes on, of how many at least."""

BETWEEN: tuple[tuple[str, str], ...] = (
    (
        "private key",
        (
            r"-----? ?BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)? ?-----?"
            r"(?:(?:(?!-----? ?BEGIN)[\s\S])*?"
            r"-----? ?END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)? ?-----?"
            # Of one that was cut there is no end: what looks like one goes.
            rf"|{_BREAK}*(?:{_HEADER}{_BREAK}+){{0,8}}(?:[A-Za-z0-9+/=]{{16,}}{_BREAK}*)+)"
        ),
    ),
    ("private key", r"PuTTY-User-Key-File-\d:[\s\S]*?(?:Private-(?:MAC|Hash): *[0-9a-f]+|\Z)"),
    ("telegram token", START + r"\d{8,10}:AA[A-Za-z0-9_\-]{32,36}"),
    ("discord token", START + r"[MNO][A-Za-z\d_-]{23,26}\.[\w-]{6}\.[A-Za-z0-9_-]{27,40}"),
    ("mailchimp key", START + r"[0-9a-f]{32}-us\d{1,2}(?!\d)"),
    ("azure key", r"(?i:AccountKey|SharedAccessKey)=[A-Za-z0-9+/]{40,90}={0,2}"),
    (
        "bearer token",
        (
            rf"{START}(?i:authorization[\\\"']{{0,8}}\s*[:=]\s*[\\\"']{{0,8}}(?:bearer|token)\s+)"
            r"[A-Za-z0-9_\-.=+/~]{8,}"
        ),
    ),
    (
        "basic credentials",
        (
            rf"{START}(?i:authorization[\\\"']{{0,8}}\s*[:=]\s*[\\\"']{{0,8}}basic\s+)"
            r"[A-Za-z0-9+/=]{8,}"
        ),
    ),
    ("password", r"(?<=://)[^\s/:@\"'<>]{0,100}:[^\s/?#\"'<>]{1,300}(?=@)"),
    (
        "secret",
        (
            rf"(?:(?:{START}|(?<=[a-z0-9])(?=[A-Z]))(?i:{_NAMED})|(?i:{_PHRASE}))"
            rf"(?i:{_SAYS}\s*){_VALUE}"
        ),
    ),
    (
        "secret option",
        (
            r"(?<![A-Za-z0-9_\-])--?(?i:pass|passphrase|passwo?r?d"
            r"|(?:[a-z]{1,20}-)?(?:token|secret|password)"
            r"|(?:[a-z]{1,20}-)?(?:api|access|private|secret)-?key)(?:=|\s+)"
            rf"(?![\d.,]+(?![^\s\"'`])){_VALUE}"
        ),
    ),
    (
        "login",
        (
            r"(?<=\s)(?:-u|--user)(?:=|\s*)\\?[\"']?(?=[^\s\"':]{0,100}[A-Za-z])(?=[^\s\"']{0,300}\d)"
            r"[^\s\"':$<{]{1,100}:[^\s\"'$<{]{3,200}"
        ),
    ),
    ("password in words", rf"(?i:{_PHRASE}\s+(?:is|was|ist|lautet|est|es)\s*:?\s*){_VALUE}"),
)

NAMED = rf"(?:key|secret|token|{_PHRASE}){_SAYS}"
"""What stands in every secret that is one by its name, in small letters; its hints are plain words.
"""

EXACT: dict[str, str] = {
    "aws key": "AKIA ASIA ABIA ACCA A3T",
    "github token": "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
    "gitlab token": "glpat- glrt- glptt- gldt- glsoat- glcbt- glft- glimt- glagent- gloas- glffct-",
    "gitlab runner token": "GR1348941",
    "slack token": "xox xapp-",
    "slack webhook": "hooks.slack.com",
    "discord webhook": "/api/webhooks/",
    "anthropic key": "sk-ant-",
    "openai key": "sk-",
    "google key": "AIza",
    "google token": "ya29.",
    "google secret": "GOCSPX-",
    "stripe key": "k_live_ k_test_ whsec_",
    "square key": "sq0",
    "twilio key": "SK AC",
    "sendgrid key": "SG.",
    "mailgun key": "key-",
    "npm token": "npm_",
    "pypi token": "pypi-AgE",
    "hugging face token": "hf_",
    "digitalocean token": "_v1_",
    "shopify token": "shp",
    "databricks token": "dapi",
    "vault token": "hvs. hvb. hvr.",
    "doppler token": "dp.",
    "artifactory token": "AKC",
    "softlayer key": "api.softlayer.com",
    "age key": "AGE-SECRET-KEY-1",
    "json web token": "eyJ",
    "groq key": "gsk_",
    "xai key": "xai-",
    "replicate token": "r8_",
    "perplexity key": "pplx-",
    "nvidia key": "nvapi-",
    "tavily key": "tvly-",
    "grafana token": "glsa_ glc_",
    "atlassian token": "ATATT3x",
    "docker token": "dckr_pat_ dckr_oat_",
    "linear key": "lin_api_ lin_oauth_",
    "notion token": "ntn_",
    "private key": "PRIVATE PuTTY-User-Key-File-",
    "telegram token": ":AA",
    "mailchimp key": "-us",
    "password": "://",
}
"""What stands in each kind of secret as it is written; most text has none of that."""

FOLDED: dict[str, str] = {
    "azure key": "accountkey= sharedaccesskey=",
    "bearer token": "authorization",
    "basic credentials": "authorization",
    "secret": (
        "secret token apikey appkey authkey servicekey accountkey clientkey encryptionkey "
        f"signingkey privatekey _key -key {_PHRASES}"
    ),
    "secret option": "-pass -token -secret -key -apikey -accesskey -privatekey",
    "login": "curl",
    "password in words": _PHRASES,
}
"""What stands in it in small or large letters."""
