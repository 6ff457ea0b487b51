"""What secrets look like: how each kind begins and goes on, and what stands in every one of it.

A hint has to stand in each secret of its kind: where none does, the pattern is not tried at all.
"""

from __future__ import annotations

_WORD = r"[A-Za-z0-9_\-]"
_PHRASE = (
    r"(?:passwo?r?[dt]|passphrase|passcode|kennwort|mot de passe|contrase(?:ñ|n)a|senha|пароль"
    r"|密码|密碼|パスワード|비밀번호)"
)
_PHRASES = (
    "passw passphrase passcode kennwort passe contrase senha пароль 密码 密碼 パスワード 비밀번호"
)
_NAME = (
    r"(?:(?:api|app|auth|service|account|client|encryption|signing|private)[_-]?key"
    r"|secret(?:[_-]?(?:access[_-]?)?key)?|client[_-]?secret"
    r"|(?:access|auth|refresh|api|bot|session)[_-]?token|" + _PHRASE + ")"
)
_SAYS = r"\\?[\"']?\s*(?::=|=>|=|[:\uff1a])"
_VALUE = (
    r"(?:\\?\"[^\"\s]{6,200}\"|'[^'\s]{6,200}'"
    r"|\\?[\"'`]?(?=[^\s\"'`,;]{0,200}\d)[^\s\"'`,;<>(){}\[\]$][^\s\"'`,;<>(){}\[\]]{7,200})"
)
"""A value that is a secret by what stands before it: quoted, or with a digit in it."""

BEGINNINGS: tuple[tuple[str, str, str, int], ...] = (
    ("aws key", r"\b(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])", r"[A-Z0-9]", 16),
    ("github token", r"\b(?:gh[pousr]_|github_pat_)", r"[A-Za-z0-9_]", 20),
    ("gitlab token", r"\bgl(?:pat|rt|ptt|dt|soat|cbt|ft|imt|agent|oas|ffct)-", r"[\w\-.]", 16),
    ("gitlab runner token", r"\bGR1348941", r"[\w\-]", 16),
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
    ("artifactory token", r"\bAKC(?=[A-Za-z0-9]{0,80}\d)", r"[A-Za-z0-9]", 10),
    ("softlayer key", r"https?://api\.softlayer\.com/soap/v3(?:\.1)?/", r"[A-Za-z0-9]", 32),
    ("age key", r"\bAGE-SECRET-KEY-1", r"[A-Z0-9]", 20),
    ("json web token", r"\beyJ(?:(?!\beyJ)[\w\-])+\.eyJ", r"[\w\-.=]", 10),
)
"""Name, how it begins, of which characters it goes on, of how many at least."""

BETWEEN: tuple[tuple[str, str], ...] = (
    (
        "private key",
        (
            r"-----? ?BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)? ?-----?"
            r"(?:(?!-----? ?BEGIN)[\s\S])*?"
            r"(?:-----? ?END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)? ?-----?|\Z)"
        ),
    ),
    ("private key", r"PuTTY-User-Key-File-\d[\s\S]*?(?:Private-(?:MAC|Hash): *[0-9a-f]+|\Z)"),
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
        rf"(?:(?<![A-Za-z0-9])|(?<=[a-z0-9])(?=[A-Z]))(?i:{_NAME}{_SAYS}\s*){_VALUE}",
    ),
    (
        "secret option",
        (
            r"(?<![\w\-])--?(?i:pass|passphrase|passwo?r?d|(?:[a-z]{1,20}-)?(?:token|secret|password)"
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
    (
        "password in words",
        rf"(?i:\b{_PHRASE}\s+(?:is|was|ist|lautet|est|es)\s*:?\s*){_VALUE}",
    ),
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
