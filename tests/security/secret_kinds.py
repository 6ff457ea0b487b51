"""A realistic sample of every kind of secret, made from a seed, and ways to disguise it.

A sample is a template: `{a36}` is 36 letters and digits, `h` hexadecimal digits, `u` capitals and
digits, `l` small letters and digits, `d` digits, `w` letters, digits, `_` and `-`, `b` base64. The
drawn parts are the secret; the rest is public.
"""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

from mcp_serve.redaction.secret_kinds import SHAPES, TOKENS

_SETS = {
    "a": string.ascii_letters + string.digits,
    "h": "0123456789abcdef",
    "u": string.ascii_uppercase + string.digits,
    "l": string.ascii_lowercase + string.digits,
    "d": string.digits,
    "w": string.ascii_letters + string.digits + "_-",
    "b": string.ascii_letters + string.digits + "+/",
}
_UUID = "{h8}-{h4}-4{h3}-a{h3}-{h12}"
_DRAWN = re.compile(r"\{([ahuldwb])(\d+)\}")


class Sample(NamedTuple):
    """A secret as part of a text, and its parts that must not come out."""

    kind: str
    text: str
    parts: tuple[str, ...]


def _make_pem(label: str, lines: int) -> str:
    body = "\n".join(["{b64}"] * lines)
    return f"-----BEGIN {label}-----\n{body}\n{{b20}}==\n-----END {label}-----"


TEMPLATES: dict[str, tuple[str, ...]] = {
    "1password key": ("A3-{u6}-{u6}-{u5}-{u5}-{u5}-{u5}",),
    "1password token": ("ops_eyJ{a120}",),
    "age key": ("AGE-SECRET-KEY-1{u58}",),
    "airtable token": ("pat{a14}.{h64}",),
    "alibaba key": ("LTAI{a20}",),
    "anthropic key": ("sk-ant-api03-{w90}AA", "sk-ant-oat01-{w80}"),
    "apify token": ("apify_api_{a36}",),
    "artifactory reference": ("cmVmdGtu{a56}",),
    "artifactory token": ("AKCp{a60}",),
    "atlassian token": ("ATATT3x{w180}={h8}",),
    "authorization header": (
        "Authorization: Bearer {w40}",
        '"Authorization": "token {h40}"',
        "Authorization: SSWS 00{w40}",
    ),
    "aws key": ("AKIA{u16}", "ASIA{u16}"),
    "azure client secret": ("{a3}8Q~{a31}",),
    "azure devops token": ("{a76}AZDO{a4}",),
    "azure key": ("AccountName=shop;AccountKey={b86}==;EndpointSuffix=core.example.net",),
    "basic credentials": ("Authorization: Basic {b32}==",),
    "bearer token": ("the header is Bearer {w48}",),
    "bitbucket password": ("ATBB{a32}",),
    "brave key": ("BSA{w28}",),
    "brevo key": ("xkeysib-{h64}-{a16}",),
    "browserbase key": ("bb_live_{w32}",),
    "buildkite token": ("bkua_{h40}",),
    "cerebras key": ("csk-{l48}",),
    "circleci token": ("CCIPAT_{a22}_{h40}",),
    "clickup token": ("pk_{d8}_{u32}",),
    "clojars token": ("CLOJARS_{h60}",),
    "cloudflare key": ("v1.0-{h24}-{h146}",),
    "contentful token": ("CFPAT-{w43}",),
    "crates token": ("cio{a32}",),
    "databricks token": ("dapi{h32}-2", "dose{h32}"),
    "digitalocean token": ("dop_v1_{h64}",),
    "discord token": ("MTA{a23}.G{a5}.{w38}",),
    "discord webhook": ("https://discord.com/api/webhooks/{d18}/{w68}",),
    "docker credentials": ('{{"auths": {{"ghcr.io": {{"auth": "{b60}=="}}}}}}',),
    "docker token": ("dckr_pat_{w27}",),
    "doppler token": ("dp.pt.{a43}",),
    "dropbox token": ("sl.u.{w130}",),
    "duffel token": ("duffel_live_{w43}",),
    "dynatrace token": ("dt0c01.{u24}.{u64}",),
    "e2b key": ("e2b_{h40}",),
    "easypost key": ("EZAK{a54}",),
    "elevenlabs key": ("sk_{h48}",),
    "facebook token": ("EAA{a120}",),
    "figma token": ("figd_{w40}",),
    "firecrawl key": ("fc-{h32}",),
    "fireworks key": ("fw_{a24}",),
    "flutterwave key": ("FLWSECK-{h32}-X",),
    "fly token": ("FlyV1 fm2_{b120}",),
    "frame.io token": ("fio-u-{w64}",),
    "github token": ("ghp_{a36}", "github_pat_{a22}_{a59}", "ghs_{a36}"),
    "gitlab runner token": ("GR1348941{w20}",),
    "gitlab token": ("glpat-{w20}", "gldt-{w20}"),
    "google key": ("AIza{w35}",),
    "google refresh token": ("1//0{w60}",),
    "google secret": ("GOCSPX-{w28}",),
    "google token": ("ya29.a0{w120}",),
    "grafana token": ("glsa_{a32}_{h8}",),
    "groq key": ("gsk_{a52}",),
    "helicone key": ("sk-helicone-{a24}",),
    "heroku key": ("HRKU-AA{w58}",),
    "honeycomb key": ("hcaik_{l58}",),
    "hubspot token": (f"pat-na1-{_UUID}",),
    "hugging face token": ("hf_{a34}",),
    "infisical token": ("st.{h24}.{h32}.{h32}",),
    "infracost key": ("ico-{a32}",),
    "inngest key": ("signkey-prod-{h64}",),
    "instagram token": ("IGQ{w140}",),
    "intercom token": ("dG9rO{a55}=",),
    "jina key": ("jina_{w60}",),
    "json web token": ("eyJ{a33}.eyJ{a60}.{w43}",),
    "kubeconfig key": ("    client-key-data: {b400}==",),
    "langfuse key": (f"sk-lf-{_UUID}",),
    "langsmith key": ("lsv2_pt_{h32}_{h10}",),
    "launchdarkly key": (f"sdk-{_UUID}",),
    "linear key": ("lin_api_{a40}",),
    "login of curl": ("curl -sS -u deploy:{a16}7 https://git.example.org",),
    "mailchimp key": ("{h32}-us12",),
    "mailersend token": ("mlsn.{h64}",),
    "mailgun key": ("key-{h32}",),
    "mapbox token": ("sk.eyJ{a60}.{w22}",),
    "modal secret": ("as-{a22}",),
    "mongodb atlas secret": ("mdb_sa_sk_{w40}",),
    "named key": (
        "AZURE_API_KEY={a32}7",
        'api-key: "{a24}7"',
        '"private_key": "{b64}7"',
        "aws_secret_access_key = {b40}7",
        "vercel_access_key={a24}7",
    ),
    "named password": (
        'db_password = "{a18}"',
        "password: {a12}7{a4}",
        "Kennwort: {a16}7",
        '"contraseña": "{a16}7"',
        "senha={a16}7",
        '"пароль": "{a16}7"',
        "数据库密码\uff1a{a16}7",
        '{{"パスワード": "{a16}7"}}',
        "비밀번호: {a16}7",
    ),
    "named secret": ("client_secret={a32}7", "STRIPE_SECRET: '{a24}'"),
    "named token": (
        'aws_session_token = "{b900}7"',
        "VERCEL_TOKEN={a23}7",
        "AWS_SESSION_TOKEN={b600}7",
        '"token": "{a40}7"',
    ),
    "neon key": ("napi_{l60}7", "npg_{a14}7"),
    "netlify token": ("nfp_{a36}",),
    "netrc password": ("machine api.example.org login deploy password {a20}",),
    "new relic key": ("NRAK-{u27}",),
    "new relic license": ("{h36}NRAL",),
    "notion token": ("ntn_{d11}{a35}", "secret_{a43}"),
    "npm credentials": ("//registry.example.org/:_auth={b48}==",),
    "npm token": ("npm_{a36}",),
    "nuget key": ("oy2{l43}",),
    "nvidia key": ("nvapi-{w64}",),
    "openai key": ("sk-proj-{w120}", "sk-{a20}T3BlbkFJ{a20}", "sk-svcacct-{w60}"),
    "openrouter key": ("sk-or-v1-{h64}",),
    "packagist token": ("packagist_ut_{h64}",),
    "paddle key": ("pdl_live_apikey_{l26}_{a22}_{a3}",),
    "password": ("postgres://shop:{a20}@db.example.org:5432/shop",),
    "password in words": (
        "the password is {a16}7",
        "le mot de passe est '{a16}'",
        "das Passwort lautet {a16}7",
    ),
    "password of an environment": ("export DB_PASSWORD={a20}",),
    "paypal token": ("access_token$production${l16}${h32}",),
    "perplexity key": ("pplx-{a48}",),
    "pinecone key": ("pcsk_{a70}",),
    "plaid token": (f"access-production-{_UUID}",),
    "planetscale token": ("pscale_tkn_{w43}",),
    "posthog key": ("phx_{a43}",),
    "postman key": ("PMAK-{h24}-{h34}",),
    "prefect key": ("pnu_{a36}",),
    "private key": (
        _make_pem("RSA PRIVATE KEY", 12),
        _make_pem("OPENSSH PRIVATE KEY", 6),
        _make_pem("PRIVATE KEY", 3),
        _make_pem("PGP PRIVATE KEY BLOCK", 8),
    ),
    "pulumi token": ("pul-{h40}",),
    "putty key": (
        "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n{b48}\nPrivate-MAC: {h64}",
    ),
    "pypi token": ("pypi-AgEIcHlwaS5vcmc{w120}",),
    "readme key": ("rdme_{l70}",),
    "render key": ("rnd_{a28}",),
    "replicate token": ("r8_{a37}",),
    "resend key": ("re_{a7}4_{a24}",),
    "rubygems key": ("rubygems_{h48}",),
    "runpod key": ("rpa_{u46}",),
    "salesforce token": ("00D{a12}!{a90}",),
    "scaleway key": ("SCW{u16}7",),
    "secret in an address": (
        "https://shop.blob.example.net/c/x?sv=2023-11-03&se=2027-01-01&sig={a40}7%2B{a20}%3D",
        "https://example.org/hook?token={a30}7",
        "https://maps.example.org/js?key={a32}7&v=3",
        "wss://example.org/feed?access_token={w40}7x",
        "https://s3.example.org/b/o?X-Amz-Signature={h64}",
    ),
    "secret option": ("tailscale up --auth-token {a24}7", "mysqldump --password={a16}7 shop"),
    "sendgrid key": ("SG.{w22}.{w43}",),
    "sentry token": ("sntrys_eyJ{b100}", "sntryu_{h64}"),
    "shippo token": ("shippo_live_{h40}",),
    "shopify token": ("shpat_{h32}",),
    "slack token": ("xoxb-{d12}-{d12}-{a24}", "xapp-1-A{u10}-{d13}-{h64}"),
    "slack webhook": ("https://hooks.slack.com/services/T{u8}/B{u8}/{a24}",),
    "softlayer key": ("https://api.softlayer.com/soap/v3/{h64}",),
    "sonarqube token": ("squ_{h40}",),
    "sourcegraph token": ("sgp_{h16}_{h40}",),
    "square key": ("sq0csp-{w43}",),
    "stripe key": ("sk_live_{a24}", "rk_live_{a90}", "whsec_{a32}"),
    "supabase key": ("sbp_{h40}", "sb_secret_{w31}"),
    "tailscale key": ("tskey-auth-{a12}-{a32}",),
    "tavily key": ("tvly-dev-{a32}",),
    "teams webhook": (
        f"https://x.webhook.example.com/webhookb2/{_UUID}@{_UUID}/IncomingWebhook/{{h32}}/{_UUID}",
    ),
    "telegram token": ("{d9}:AA{w33}",),
    "tencent key": ("AKID{a32}",),
    "terraform token": ("{a14}.atlasv1.{w67}",),
    "together key": ("tgp_v1_{w43}",),
    "trigger key": ("tr_prod_{a24}",),
    "twilio key": ("SK{h32}", "AC{h32}"),
    "twitter token": ("AAAAAAAAAAAAAAAAAAAAA{a40}%3D{a40}",),
    "typeform token": ("tfp_{w44}_{w14}",),
    "vault token": ("hvs.{w90}",),
    "vercel token": ("vcp_{a56}", "vercel_blob_rw_{a16}_{a30}"),
    "voyage key": ("pa-{w40}Q7x",),
    "wandb key": ("wandb_v1_{w77}",),
    "xai key": ("xai-{a80}",),
    "yandex token": ("AQVN{w36}", "y0_{w55}"),
    "zapier webhook": ("https://hooks.zapier.com/hooks/catch/{d7}/{l7}x/",),
}

KINDS = sorted({token.kind for token in TOKENS} | {shape.kind for shape in SHAPES})
"""The kinds that redaction claims to remove; each has a template."""


def draw_sample(kind: str, seed: int) -> Sample:
    """Return a sample of a kind. The seed selects the template too."""
    chance = random.Random(f"{kind} {seed}")
    templates = TEMPLATES[kind]
    parts: list[str] = []

    def fill(gap: re.Match[str]) -> str:
        signs = _SETS[gap[1]]
        part = "".join(chance.choice(signs) for _ in range(int(gap[2])))
        # A sign at an end would be one of the text around it; a secret has a letter and a digit.
        if len(part) > 8:
            part = "".join((chance.choice("abcdef"), part[1:5], "4", part[6:-1], "9"))
        if gap[1] == "u":
            part = part.upper()
        if gap[1] == "d":
            part = "".join(sign if sign.isdigit() else "5" for sign in part)
        parts.append(part)
        return part

    text = _DRAWN.sub(fill, templates[seed % len(templates)])
    text = text.replace("{{", "{").replace("}}", "}")
    long = tuple(part for part in parts if len(part) >= WINDOW)
    return Sample(kind, text, long or (text[text.index(parts[0]) :],))


WINDOW = 9
"""This many consecutive characters of a secret must not come out anywhere."""


def _every(sample: str, step: int, sign: str) -> str:
    return sign.join(sample[at : at + step] for at in range(0, len(sample), step))


def _middle(text: str) -> int:
    return len(text) - len(text.lstrip()) + min(len(text) // 2, 11)


def _colored(text: str) -> str:
    at = _middle(text)
    return f"{text[:at]}\x1b[01;31m\x1b[K{text[at : at + 4]}\x1b[m\x1b[K{text[at + 4 :]}"


def _wrapped(text: str, width: int) -> str:
    """Return a text as a terminal of a given width wraps it, with a break within the secret."""
    at = max(1, len(text) * 3 // 4)
    lead = "see the log of the deployment of the shop, and then take what stands here: " * 3
    first = f"{lead[: width - at - 1]} {text}" if at < width and "\n" not in text else text
    return "\n".join(
        line[at : at + width] for line in first.split("\n") for at in range(0, len(line), width)
    )


def _hyperlinked(text: str) -> str:
    return f"\x1b]8;;https://example.org/\x07{text}\x1b]8;;\x07"


def _percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def _codes(text: str) -> str:
    return "".join(
        f"\\u{ord(sign):04x}" if at % 3 == 1 or not sign.isascii() else sign
        for at, sign in enumerate(json.dumps(text, ensure_ascii=False)[1:-1])
        if sign != "\\"
    )


DISGUISES: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "colors of grep": _colored,
    "a cursor sequence before it": lambda text: f"\x1b[2K\x1b[1G{text}",
    "a hyperlink of a terminal": _hyperlinked,
    "printed bold by backspaces": lambda text: (
        "".join(f"{s}\x08{s}" for s in text) if "\n" not in text else text
    ),
    "zero width spaces": lambda text: _every(text, 7, "\u200b"),
    "variation selectors": lambda text: _every(text, 5, "\ufe0f"),
    "grapheme joiners": lambda text: _every(text, 3, "\u034f"),
    "marks of direction": lambda text: f"\u202e{_every(text, 11, chr(0x2066))}\u202c",
    "JSON": json.dumps,
    "JSON in JSON": lambda text: json.dumps(json.dumps({"said": [text]})),
    "codes of JSON": _codes,
    "slashes of JSON": lambda text: json.dumps(text, ensure_ascii=False).replace("/", "\\/"),
    "percent signs": _percent,
    "an address": lambda text: f"https://example.org/cb?state={quote(text, safe='')}",
    "wrapped at 80": lambda text: _wrapped(text, 80),
    "wrapped at 120": lambda text: _wrapped(text, 120),
    "wrapped at 76 in JSON": lambda text: json.dumps(_wrapped(text, 76)),
    "wrapped at 97": lambda text: _wrapped(text, 97),
    "a line of a log": lambda text: f"2026-11-19T12:00:00Z INFO [worker-3] got: {text} (ok)",
}
