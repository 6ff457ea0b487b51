"""Planted keys of many kinds, made at run time so that no file holds one, and innocent texts."""

from __future__ import annotations

_A = "Zx9Qw3Rt7Yp1Lk5Jh8Gf2Ds6Az4Xc0Vb9Nm3Qw7Er1Ty5Ui8Op2As6Df4Gh0Jk"
_HEX = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"


def _make_key(kind: str) -> str:
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{_A}\n{_A}\n-----END {kind}PRIVATE KEY-----"


PLANTED = {
    "aws": "AKIA" + _A[:16].upper(),
    "aws secret": "aws_secret_access_key = " + _A[:40],
    "github": "gh" + "p_" + _A[:36],
    "github fine": "github" + "_pat_" + _A[:22] + "_" + _A,
    "gitlab": "gl" + "pat-" + _A[:20],
    "slack": "xox" + "b-123456789012-123456789012-" + _A[:24],
    "openai": "sk-" + "proj-" + _A[:48],
    "anthropic": "sk-" + "ant-api03-" + _A,
    "google": "AIza" + _A[:35],
    "stripe": "sk" + "_live_" + _A[:24],
    "sendgrid": "SG." + _A[:22] + "." + _A[:43],
    "twilio": "SK" + _HEX,
    "telegram": "123456789:AA" + _A[:33],
    "npm": "npm" + "_" + _A[:36],
    "pypi": "pypi-" + "AgEIcHlwaS5vcmc" + _A,
    "jwt": "eyJ" + _A[:20] + ".eyJ" + _A[:30] + "." + _A[:43],
    "rsa": _make_key("RSA "),
    "openssh": _make_key("OPENSSH "),
    "pkcs8": _make_key(""),
    "basic auth": "https://deploy:" + _A[:20] + "@git.example.org/repo",
    "bearer": "Authorization: Bearer " + _A[:40],
    "password": 'db_password = "' + _A[:18] + '"',
    "mailchimp": _HEX + "-us12",
    "azure": "AccountKey=" + _A + _A[:22] + "==",
    "hugging face": "hf" + "_" + _A[:34],
    "option": "mysqldump --password " + _A[:16] + " shop",
    "option of a client": "gh auth login --with-token=" + _A[:16],
    "login": "curl -sS -u deploy:" + _A[:16] + " https://git.example.org",
    "in words": "The password is " + _A[:16] + ".",
    "in German": "Kennwort: " + _A[:16],
    "in French": "le mot de passe est '" + _A[:16] + "'",
    "in Chinese": "数据库密码\uff1a" + _A[:16],
}
"""Each secret as part of a text; `secret_of` returns the part that must not get out."""


def get_secret(planted: str) -> str:
    """Return the part of a planted key that must stay hidden."""
    return next(part for part in (_A[:16], _A[:16].upper(), _HEX) if part in planted)


HARMLESS = (
    "9fceb02d0ae598e95dc970b74767f19372d61af8",
    "commit 3f785f0 and sha256:" + _HEX * 2,
    "550e8400-e29b-41d4-a716-446655440000",
    "session 20261103_120000_7c31ab",
    "see https://example.org/a/b?id=12345678#frag and http://localhost:8080/x",
    "the secret of a good life is sleep; password rules: 12 characters",
    "call_9Xk2Lm4Pq7Rs1Tu5Vw8Yz3Ab",
    "token_count: 123456, max_tokens=4096, api_key: str = Field()",
    "MTIzNDU2Nzg5MDEyMzQ1Njc4OTA=",
    "run --max-token 100000 --token $TOKEN_2 --api-key <key-12345678>",
    "docker run -u 1000:1000 app; curl -u $NAME:$PASS_1 x; sudo -u postgres psql",
    "the password is wrong; the passphrase was changed on 2026-11-03",
    "git push -u origin feature-1234; mkdir -p a/b; --password-file=/run/secrets/db1",
)
