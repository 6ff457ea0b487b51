"""Keys in the formats that the scanner `detect-secrets` knows, made at run time.

That scanner (1.5.0) finds each of them. It is not a dependency: it brings an HTTP client, and half
of its findings depend on how random a text looks, which our redaction ignores.
"""

from __future__ import annotations

import base64
import json

_HEX = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
_BODY = "Zx9Qw3Rt7Yp1Lk5Jh8Gf2Ds6Az4Xc0Vb9Nm3Qw7Er1Ty5Ui8Op2As6Df4Gh0Jk"
_LOW = _BODY.lower()


def _make_token_part(**text: str) -> str:
    """Return a part of a JSON web token."""
    return base64.urlsafe_b64encode(json.dumps(text).encode()).decode().rstrip("=")


def _make_key(kind: str, dashes: str = "-----", gap: str = "") -> str:
    begin, end = (f"{dashes}{gap}{word} {kind}KEY{gap}{dashes}" for word in ("BEGIN", "END"))
    return f"{begin}\n{_BODY}\n{_BODY}\n{end}"


FORMATS = {
    "artifactory key": f' "AKC{_BODY[:20]}" ',
    "artifactory password": f"artifactory password: AP5{_BODY[:20]}",
    "aws id": "AKIA" + _BODY[:16].upper(),
    "aws short id": "A3TX" + _BODY[:16].upper(),
    "aws secret": f'aws_secret_key = "{_BODY[:40]}"',
    "azure": f"AccountKey={_BODY}{_BODY[:24]}==",
    "basic auth": f"https://admin:{_BODY[:16]}@db.example.org/x",
    "cloudant": f"cloudant_password = {_HEX * 2}",
    "cloudant address": f"https://user:{_HEX * 2}@user.cloudant.com",
    "discord": f"MTE4{_BODY[:20]}.Gx3Yz1.{_BODY[:27]}",
    "github": "gh" + "p_" + _BODY[:36],
    "gitlab": "gl" + f"pat-{_BODY[:20]}",
    "gitlab runner": "GR" + f"1348941{_BODY[:20]}",
    "gitlab trigger": "gl" + f"ptt-{_HEX}{_HEX[:8]}",
    "ibm cloud": f"ibm_cloud_iam_api_key: {_BODY[:44]}",
    "ibm cos": f'cos_hmac_secret_access_key = "{_HEX}{_HEX[:16]}"',
    "json web token": f"{_make_token_part(alg='HS256')}."
    f"{_make_token_part(sub='1234567890')}.{_BODY[:43]}",
    "keyword api key": f'api_key = "{_BODY[:24]}"',
    "keyword password": f'password: "{_BODY[:12]}"',
    "keyword secret": f"client_secret => '{_BODY[:24]}'",
    "keyword auth key": f'auth_key = "{_BODY[:24]}"',
    "mailchimp": _HEX + "-us12",
    "npm": "//registry.example.org/:_authToken=npm" + f"_{_BODY[:36]}",
    "npm id": "//registry.example.org/:_authToken=0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
    "openai": f"sk-{_BODY[:20]}T3Blbk" + f"FJ{_BODY[:20]}",
    "private rsa": _make_key("RSA PRIVATE "),
    "private ec": _make_key("EC PRIVATE "),
    "private dsa": _make_key("DSA PRIVATE "),
    "private openssh": _make_key("OPENSSH PRIVATE "),
    "private pgp": _make_key("PGP PRIVATE ").replace("KEY-", "KEY BLOCK-"),
    "private ssh2": _make_key("SSH2 ENCRYPTED PRIVATE ", "----", " "),
    "private putty": "PuTTY-User-Key-File-2: ssh-rsa\nEncryption: none\nPrivate-Lines: 2\n"
    f"{_BODY}\n{_BODY}\nPrivate-MAC: {_HEX}",
    "pypi": f"pypi-AgEIcHlwaS5vcmc{_BODY}{_BODY}",
    "sendgrid": f"SG.{_BODY[:22]}.{_BODY[:43]}",
    "slack": "xox" + f"p-123456789012-123456789012-{_BODY[:24]}",
    "slack webhook": "https://hooks.slack.com/services/T0123456Z/B0123456Z/" + _BODY[:24],
    "softlayer": f"softlayer_api_key = {_HEX * 2}",
    "softlayer address": f"https://api.softlayer.com/soap/v3/{_HEX * 2}",
    "square": "sq0" + f"csp-{_BODY[:43]}",
    "stripe": "sk" + f"_live_{_BODY[:24]}",
    "stripe restricted": "rk" + f"_live_{_BODY[:24]}",
    "telegram": f"123456789:AA{_BODY[:33]}",
    "twilio account": f"AC{_HEX}",
    "twilio key": f"SK{_HEX}",
}
"""Each key as part of a text."""

NEEDLES = (_BODY[:10], _BODY[:10].upper(), _HEX[:10], "0a1b2c3d-4e")
"""If one of these is found, a part of a key that is not its name is visible."""
