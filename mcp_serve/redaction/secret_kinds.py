"""The kinds of secrets that redaction knows, by token prefix or by the name next to a value.

A kind is searched for only in a text that has one of its prefixes or hints.
"""

from __future__ import annotations

from typing import NamedTuple

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_ALNUM = r"[A-Za-z0-9]"
_WORD = r"[A-Za-z0-9_\-]"
_NAME = r"[A-Za-z0-9_\-.]"
_SIGNED = r"[A-Za-z0-9_~.\-]"
_NO_HEX = r"(?![0-9a-fA-F])"

# The beginning of a word: a letter of another script or a sign may precede it.
START = r"(?<![A-Za-z0-9])"


class TokenKind(NamedTuple):
    """A kind of secret with a prefix of its own."""

    kind: str
    # The prefixes, separated by blanks; each is a hint too.
    prefixes: str
    # The pattern of the rest.
    body: str


# The tokens with a prefix; of two that begin at one place the longer one decides the kind.
TOKENS: tuple[TokenKind, ...] = (
    TokenKind("aws key", "AKIA ASIA ABIA ACCA A3T", r"[A-Z0-9]{16,}"),
    TokenKind("alibaba key", "LTAI", rf"(?={_ALNUM}{{0,20}}\d){_ALNUM}{{12,}}"),
    TokenKind("tencent key", "AKID", rf"(?={_ALNUM}{{0,32}}\d){_ALNUM}{{28,}}"),
    TokenKind("scaleway key", "SCW", r"(?=[A-Z0-9]{0,17}\d)[A-Z0-9]{17}(?![A-Z0-9])"),
    TokenKind("yandex token", "AQVN y0_ t1.9eu", rf"{_NAME}{{35,}}"),
    TokenKind("digitalocean token", "dop_v1_ doo_v1_ dor_v1_", r"[0-9a-f]{32,}"),
    TokenKind("heroku key", "HRKU-", rf"{_WORD}{{36,}}"),
    TokenKind("cloudflare key", "v1.0-", r"[0-9a-f]{24}-[0-9a-f]{60,}"),
    TokenKind("fly token", "fm1_ fm1r_ fm1a_ fm2_ fo1_", r"[A-Za-z0-9_\-+/=,]{40,}"),
    TokenKind("netlify token", "nfp_ nfc_ nfo_ nfu_ nfb_", rf"{_ALNUM}{{30,}}"),
    TokenKind("vercel token", "vcp_ vci_ vca_ vcr_ vck_ vercel_blob_rw_", rf"{_WORD}{{20,}}"),
    TokenKind("render key", "rnd_", rf"{_ALNUM}{{24,}}"),
    TokenKind("supabase key", "sbp_ sb_secret_", rf"{_WORD}{{20,}}"),
    TokenKind("neon key", "napi_ npg_", r"(?=[a-zA-Z0-9]{0,40}\d)[A-Za-z0-9]{12,}"),
    TokenKind("planetscale token", "pscale_tkn_ pscale_oauth_ pscale_pw_", rf"{_NAME}{{30,}}"),
    TokenKind("mongodb atlas secret", "mdb_sa_sk_", rf"{_WORD}{{30,}}"),
    TokenKind("databricks token", "dapi dose", r"[0-9a-f]{32}(?:-\d)?(?![0-9a-fA-F])"),
    TokenKind("tailscale key", "tskey-", rf"(?:[a-z]{{2,10}}-)?{_ALNUM}{{6,}}-?{_WORD}{{10,}}"),
    TokenKind("vault token", "hvs. hvb. hvr.", rf"{_NAME}{{20,}}"),
    TokenKind("pulumi token", "pul-", r"[0-9a-f]{40}"),
    TokenKind("infracost key", "ico-", rf"{_ALNUM}{{32}}(?!{_ALNUM})"),
    TokenKind("prefect key", "pnu_ pna_ pnb_", rf"{_ALNUM}{{36}}"),
    TokenKind("1password token", "ops_", r"eyJ[A-Za-z0-9+/=_\-]{40,}"),
    TokenKind("1password key", "A3-", r"[A-Z0-9]{6}-(?:[A-Z0-9]{5,6}-?){4,5}"),
    TokenKind(
        "doppler token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", rf"{_NAME}{{30,}}"
    ),
    TokenKind("infisical token", "st.", r"[0-9a-f]{24}\.[0-9a-f]{32}\.[0-9a-f]{32}"),
    TokenKind("age key", "AGE-SECRET-KEY-1", r"[A-Z0-9]{20,}"),
    TokenKind("github token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"[A-Za-z0-9_]{20,}"),
    TokenKind(
        "gitlab token",
        "glpat- glrt- glptt- gldt- glsoat- glcbt- glft- glimt- glagent- gloas- glffct-",
        rf"{_NAME}{{16,}}",
    ),
    TokenKind("gitlab runner token", "GR1348941", rf"{_WORD}{{16,}}"),
    TokenKind("bitbucket password", "ATBB", rf"(?={_ALNUM}{{0,32}}\d){_ALNUM}{{28,}}"),
    TokenKind("atlassian token", "ATATT3x ATCTT3x ATSTT3x", r"[A-Za-z0-9_\-=]{40,}"),
    TokenKind("sourcegraph token", "sgp_", r"[A-Za-z0-9_]{40,}"),
    TokenKind("circleci token", "CCIPAT_ CCIPRJ_", r"[A-Za-z0-9_]{40,}"),
    TokenKind("buildkite token", "bkua_ bkct_", r"[0-9a-f]{36,}"),
    TokenKind("sonarqube token", "squ_ sqp_ sqa_", r"[0-9a-f]{40}"),
    TokenKind("npm token", "npm_", rf"{_ALNUM}{{30,}}"),
    TokenKind("pypi token", "pypi-AgE", rf"{_WORD}{{30,}}"),
    TokenKind("rubygems key", "rubygems_", r"[0-9a-f]{40,}"),
    TokenKind("crates token", "cio", r"(?=[A-Za-z0-9]{0,32}\d)[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    TokenKind("nuget key", "oy2", r"[a-z0-9]{43}(?![A-Za-z0-9])"),
    TokenKind("clojars token", "CLOJARS_", r"[0-9a-f]{60}"),
    TokenKind("packagist token", "packagist_ut_ packagist_uut_ packagist_org_", r"[0-9a-f]{40,}"),
    TokenKind("artifactory token", "AKC", rf"(?={_ALNUM}{{0,80}}\d){_ALNUM}{{10,}}"),
    TokenKind("artifactory reference", "cmVmdGtu", rf"{_ALNUM}{{50,}}"),
    TokenKind("docker token", "dckr_pat_ dckr_oat_", rf"{_WORD}{{20,}}"),
    TokenKind("anthropic key", "sk-ant-", rf"{_WORD}{{16,}}"),
    TokenKind("openai key", "sk-proj- sk-svcacct- sk-admin- sk-None-", rf"{_WORD}{{20,}}"),
    TokenKind("openai key", "sk-", rf"(?={_ALNUM}{{0,60}}\d){_ALNUM}{{20,}}"),
    TokenKind("openrouter key", "sk-or-v1- sk-or-", r"[0-9a-f]{32,}"),
    TokenKind("langfuse key", "sk-lf-", _UUID),
    TokenKind("helicone key", "sk-helicone-", rf"{_WORD}{{16,}}"),
    TokenKind("langsmith key", "lsv2_pt_ lsv2_sk_", r"[0-9a-f]{32}_[0-9a-f]{10}"),
    TokenKind("groq key", "gsk_", rf"{_ALNUM}{{40,}}"),
    TokenKind("xai key", "xai-", rf"{_ALNUM}{{40,}}"),
    TokenKind("replicate token", "r8_", rf"{_ALNUM}{{30,}}"),
    TokenKind("perplexity key", "pplx-", rf"{_ALNUM}{{32,}}"),
    TokenKind("nvidia key", "nvapi-", rf"{_WORD}{{40,}}"),
    TokenKind("cerebras key", "csk-", r"[a-z0-9]{40,}"),
    TokenKind("fireworks key", "fw_", rf"(?={_ALNUM}{{0,24}}\d){_ALNUM}{{22,}}"),
    TokenKind("together key", "tgp_v1_", rf"{_WORD}{{36,}}"),
    TokenKind("voyage key", "pa-", rf"(?={_WORD}{{0,43}}\d)(?={_WORD}{{0,43}}[A-Z]){_WORD}{{40,}}"),
    TokenKind("jina key", "jina_", rf"{_WORD}{{40,}}"),
    TokenKind("pinecone key", "pcsk_", r"[A-Za-z0-9_]{40,}"),
    TokenKind("hugging face token", "hf_ api_org_", rf"{_ALNUM}{{30,}}"),
    TokenKind("wandb key", "wandb_v1_", rf"{_WORD}{{40,}}"),
    TokenKind("elevenlabs key", "sk_", rf"[0-9a-f]{{48}}{_NO_HEX}"),
    TokenKind("e2b key", "e2b_", r"[0-9a-f]{40}"),
    TokenKind("modal secret", "as-", r"(?=[A-Za-z0-9]{0,22}\d)[A-Za-z0-9]{22}(?![\w\-])"),
    TokenKind("runpod key", "rpa_", r"[A-Z0-9]{36,}"),
    TokenKind("browserbase key", "bb_live_ bb_test_", rf"{_WORD}{{20,}}"),
    TokenKind("tavily key", "tvly-", rf"{_WORD}{{20,}}"),
    TokenKind("firecrawl key", "fc-", rf"[0-9a-f]{{32}}{_NO_HEX}"),
    TokenKind("brave key", "BSA", rf"(?={_WORD}{{0,28}}\d){_WORD}{{28}}(?!{_WORD})"),
    TokenKind("apify token", "apify_api_", rf"{_ALNUM}{{30,}}"),
    TokenKind("google key", "AIza", rf"{_WORD}{{35,}}"),
    TokenKind("google token", "ya29.", rf"{_NAME}{{20,}}"),
    TokenKind("google refresh token", "1//0", rf"{_WORD}{{40,}}"),
    TokenKind("google secret", "GOCSPX-", rf"{_WORD}{{20,}}"),
    TokenKind(
        "slack token", "xoxa- xoxb- xoxc- xoxe- xoxo- xoxp- xoxr- xoxs-", r"(?=\d)[\w\-]{10,}"
    ),
    TokenKind("slack token", "xapp-", r"(?=\d)[\w\-]{16,}"),
    TokenKind("slack token", "xoxe.xoxp- xoxe.xoxb- xoxd-", r"[\w\-%+/=]{20,}"),
    TokenKind("facebook token", "EAA", rf"{_ALNUM}{{80,}}"),
    TokenKind("instagram token", "IGQ", rf"{_WORD}{{100,}}"),
    TokenKind(
        "twitter token",
        "AAAAAAAAAAAAAAAAAAAA",
        r"(?=A{0,4}[A-Za-z0-9%=]{20,}\d)[A-Za-z0-9%=+/]{60,}",
    ),
    TokenKind("stripe key", "sk_live_ sk_test_ rk_live_ rk_test_ whsec_", rf"{_ALNUM}{{16,}}"),
    TokenKind("square key", "sq0csp- sq0atp- sq0idp- EAAA", rf"{_WORD}{{22,}}"),
    TokenKind(
        "paypal token",
        "access_token$production$ access_token$sandbox$",
        r"[0-9a-z]{12,}\$[0-9a-f]{32}",
    ),
    TokenKind("plaid token", "access-sandbox- access-development- access-production-", _UUID),
    TokenKind("flutterwave key", "FLWSECK- FLWSECK_TEST-", r"[0-9A-Za-z]{12,}(?:-X)?"),
    TokenKind("paddle key", "pdl_live_apikey_ pdl_sdbx_apikey_", r"[A-Za-z0-9_]{40,}"),
    TokenKind("shopify token", "shpat_ shpca_ shppa_ shpss_", r"[0-9a-fA-F]{30,}"),
    TokenKind("easypost key", "EZAK EZTK", rf"{_ALNUM}{{54}}"),
    TokenKind("shippo token", "shippo_live_ shippo_test_", r"[0-9a-f]{40}"),
    TokenKind("duffel token", "duffel_live_ duffel_test_", rf"{_WORD}{{40,}}"),
    TokenKind("twilio key", "SK AC", rf"[0-9a-f]{{32}}{_NO_HEX}"),
    TokenKind("sendgrid key", "SG.", rf"{_NAME}{{20,}}"),
    TokenKind("mailgun key", "key-", rf"(?<!-key-)[0-9a-f]{{32}}{_NO_HEX}"),
    TokenKind("mailersend token", "mlsn.", r"[0-9a-f]{60,}"),
    TokenKind("brevo key", "xkeysib- xsmtpsib-", r"[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    TokenKind("resend key", "re_", r"(?=[A-Za-z0-9_]{0,33}\d)[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}"),
    TokenKind("hubspot token", "pat-na1- pat-na2- pat-eu1- pat-ap1-", _UUID),
    TokenKind("intercom token", "dG9rO", rf"(?={_ALNUM}{{0,40}}\d)[A-Za-z0-9+/]{{40,}}={{0,2}}"),
    TokenKind("salesforce token", "00D", r"[A-Za-z0-9]{12,15}![A-Za-z0-9_.]{60,}"),
    TokenKind("airtable token", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    TokenKind("notion token", "ntn_ secret_", r"(?=[A-Za-z0-9]{0,43}\d)[A-Za-z0-9]{40,}"),
    TokenKind("linear key", "lin_api_ lin_oauth_", rf"{_ALNUM}{{30,}}"),
    TokenKind("clickup token", "pk_", r"\d{4,12}_[A-Z0-9]{32}"),
    TokenKind("figma token", "figd_ figo_ figu_", rf"{_WORD}{{36,}}"),
    TokenKind("postman key", "PMAK-", r"[0-9a-f]{24}-[0-9a-f]{34}"),
    TokenKind("readme key", "rdme_", r"[a-z0-9]{60,}"),
    TokenKind("typeform token", "tfp_", r"[A-Za-z0-9_.=\-]{40,}"),
    TokenKind("contentful token", "CFPAT-", rf"{_WORD}{{40,}}"),
    TokenKind("frame.io token", "fio-u-", r"[A-Za-z0-9_=\-]{60,}"),
    TokenKind("dropbox token", "sl.", rf"(?:[Bu]\.)?{_WORD}{{100,}}"),
    TokenKind("mapbox token", "sk.eyJ", rf"{_NAME}{{40,}}"),
    TokenKind("new relic key", "NRAK- NRII- NRIQ-", rf"{_WORD}{{24,}}"),
    TokenKind("sentry token", "sntrys_ sntryu_", r"[A-Za-z0-9_=+/\-]{40,}"),
    TokenKind("grafana token", "glsa_ glc_", r"[A-Za-z0-9_+/=]{30,}"),
    TokenKind("honeycomb key", "hcaik_ hcxik_ hcbik_", r"[a-z0-9]{40,}"),
    TokenKind("dynatrace token", "dt0c01. dt0s01. dt0s16.", r"[A-Z0-9]{24}\.[A-Z0-9]{60,}"),
    TokenKind("launchdarkly key", "sdk- api- mob-", _UUID),
    TokenKind("posthog key", "phx_", rf"{_ALNUM}{{40,}}"),
    TokenKind("inngest key", "signkey-prod- signkey-test- signkey-branch-", r"[0-9a-f]{32,}"),
    TokenKind("trigger key", "tr_dev_ tr_prod_ tr_stg_", rf"{_ALNUM}{{16,}}"),
    TokenKind("json web token", "eyJ", r"(?:(?!\beyJ)[\w\-])+\.eyJ[A-Za-z0-9_\-.=]{10,}"),
)


class SecretShape(NamedTuple):
    """A kind of secret without a prefix, whose value follows a name or a sign."""

    kind: str
    # Words of which each match contains one; in lower case if the case is ignored.
    hints: str
    # The pattern; the group `value` is the secret, or else the whole match.
    pattern: str
    # Apply the pattern to the text in lower case.
    is_folded: bool = False
    # A faster pattern that must match first.
    gate: str = ""


PHRASE = (
    r"(?:passwo?r?[dt]|passphrase|passcode|kennwort|mot de passe|contrase(?:ñ|n)a|senha|пароль"
    r"|密码|密碼|パスワード|비밀번호)"
)
_ASCII_PHRASES = "passw passphrase passcode kennwort passe contrase senha"
_PHRASES = f"{_ASCII_PHRASES} пароль 密码 密碼 パスワード 비밀번호"

_ASSIGNMENT = (
    r"(?:>(?=[^\s<]{6,200}</)|[\\\"'*`]{0,8}[^\S\n]{0,40}(?::=|=>|=|%3d|[:\uff1a]|value=))"
)
"""The separator between a name and its value, also in XML and in Markdown."""

_GAP = r"\*{0,2}\s{0,40}"
_BEFORE_SIGN = r"\s{0,40}(?:[^\w\s,.;)]|value=)"
"""The separator between a name and its value, or its disguise; no other word."""

_RUN = r"[^\s\"'`,;<>(){}\[\]]"
_RUN_END = rf"(?!{_RUN})"
_REFERENCE = (
    r"(?![a-z_]{1,60}\d{0,2}(?:\.[a-z_]{1,60}\d{0,3}){1,6}"
    + _RUN_END  # settings.api_key1
    + r"|[a-z]{0,30}_?(?:api_?key|token|secret|cred)[a-z_]{0,30}\d{0,2}"
    + _RUN_END  # api_key1
    + rf"|{_RUN}{{1,200}}[(\[]"  # get_token2(
    + r"|your[-_]|xxx|\*\*\*|placeholder"
    + r"|(?:~|\.{1,2})?/[a-z._\-]{1,40}/[a-z]"  # /run/secrets/db1
    + r")"
)
"""A value that names a secret instead of being one: a variable, a call, a file, an example."""

_NOT_PLACEHOLDER = (
    r"(?!(?:string|number|boolean|required|optional|password|passphrase|secret|hidden|undefined"
    r"|default|function|object|varchar|invalid|missing|incorrect|disabled|enabled|unknown|bearer"
    r"|api_?key|text/plain|value\d{0,2})[\\\"']|your[-_ ]|xxx|\*\*\*|<|\$\{|\{\{|%\("
    r"|\$[a-z]+_\w*[\\\"'])"
)
"""A quoted word after a name that is not its value: a type, a word of a form."""

_QUOTED = (
    rf"(?:(?<!\\)\"{_NOT_PLACEHOLDER}(?=(?:[^\"\\\s]|\\\S){{6}})"
    r"[^\"\\\s]*(?:\\\S[^\"\\\s]*){0,500}\""
    rf"|\\{{1,7}}\"{_NOT_PLACEHOLDER}[^\"\s]{{6,}}\"|'{_NOT_PLACEHOLDER}[^'\s]{{6,}}')"
)
_BARE = (
    rf"\\?[\"'`]?{_REFERENCE}(?=[^\s\"'`,;]{{0,200}}[\d!#%^&*~])"
    rf"[^\s\"'`,;<>(){{}}\[\]$]{_RUN}{{7,}}"
)
VALUE = f"(?:{_QUOTED}|{_BARE})"
"""A value that is a secret because of the name before it: quoted, or with a digit or a sign."""

_LONG_VALUE = (
    rf"[\\\"'`]{{0,8}}{_REFERENCE}(?=[^\s\"'`,;]{{0,200}}\d)(?=[^\s\"'`,;]{{0,200}}[a-z])"
    r"[a-z0-9_\-.+/=~%:|]{16,}"
)
"""A value after a name that is often innocent: long, with a digit and a letter."""

_KEY_WORDS = (
    "api app auth service account client encryption signing private secret access master"
    " subscription storage webhook admin deploy shared"
)
_KEY_NAME = "|".join(
    rf"(?<={word}key)|(?<={word}[ _\-]key)|(?<={word}[_\-]access[_\-]key)"
    for word in _KEY_WORDS.split()
)
_STRONG_TOKENS = "access auth refresh api bot session security identity secret"
_STRONG_TOKEN = "|".join(
    rf"(?<={word}token)|(?<={word}[ _\-]token)" for word in _STRONG_TOKENS.split()
)
_OTHER_TOKENS = (
    "next page continuation sync pad eos bos unk mask sep cls resume max stop cancellation"
    " pagination start end first last special"
)
_NOT_TOKEN = "".join(rf"(?<!{word}[_\-]token)(?<!{word}token)" for word in _OTHER_TOKENS.split())

_LOGINS = "db user smtp mysql root admin mail email ftp ssh http proxy redis pg login"
_LOGIN_PASS = "|".join(f"(?<={word}_pass)" for word in _LOGINS.split())

# Each sign matches in one way only: two ways would backtrack exponentially.
_HEADER = r"[A-Z][A-Za-z-]{2,30}: [^\n\\]{0,200}(?=[\n\\])"
_BREAK = r"(?:[\s\"'\\,+>|\u2502\u2192]|(?<=\\)[nrt]|(?<=\s)\d{1,6}(?= ?[\t|\u2192]))"
"""The separator between the lines of a key, also if quoted, numbered or in a diff."""

# Between words of a file that may be quoted, numbered or in a diff.
_NEXT_LINE = r"\s{1,40}(?:(?:[>+|\u2502]|\d{1,6} ?[\t|\u2192])[ \t]{0,8})?"

# The kinds without a prefix.
SHAPES: tuple[SecretShape, ...] = (
    SecretShape(
        "private key",
        "PRIVATE",
        (
            r"-----? ?BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)? ?-----?"
            r"(?:(?:(?!-----? ?BEGIN)[\s\S])*?"
            r"-----? ?END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)? ?-----?"
            # A key that was cut has no end, so all lines that look like a key are included.
            rf"|{_BREAK}*(?:{_HEADER}{_BREAK}+){{0,8}}(?:[A-Za-z0-9+/=]{{16,}}{_BREAK}*)+)"
        ),
    ),
    SecretShape(
        "putty key",
        "PuTTY-User-Key-File-",
        r"PuTTY-User-Key-File-\d:[\s\S]*?(?:Private-(?:MAC|Hash): *[0-9a-f]+|\Z)",
    ),
    SecretShape(
        "discord token",
        ".",
        START + r"[MNO][\w-]{23,26}\.[\w-]{6}\.[A-Za-z0-9_-]{27,40}",
        gate=r"\.(?=[\w-]{6}\.[\w-]{27})(?:"
        + "|".join(rf"(?<=[MNO][\w-]{{{count}}}\.)" for count in range(23, 27))
        + ")",
    ),
    SecretShape("mailchimp key", "-us", START + r"[0-9a-f]{32}-us\d{1,2}(?!\d)"),
    SecretShape("new relic license", "NRAL", rf"{START}[0-9a-f]{{36}}NRAL"),
    SecretShape("azure devops token", "AZDO", rf"{START}[A-Za-z0-9]{{76}}AZDO[A-Za-z0-9]{{4}}"),
    SecretShape(
        "azure client secret", "Q~", rf"(?<![~.\-])(?<!{_WORD}){_SIGNED}{{3}}\dQ~{_SIGNED}{{31,34}}"
    ),
    SecretShape("terraform token", ".atlasv1.", START + r"[A-Za-z0-9]{14}\.atlasv1\.[\w\-]{60,}"),
    SecretShape("telegram token", ":AA", START + r"\d{8,10}:AA[A-Za-z0-9_\-]{32,36}"),
    SecretShape(
        "azure key",
        "accountkey= sharedaccesskey=",
        r"(?:accountkey|sharedaccesskey)=[a-z0-9+/%]{40,140}={0,2}",
        is_folded=True,
    ),
    SecretShape(
        "slack webhook",
        "hooks.slack.com/",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[\w/+\-]{20,}",
    ),
    SecretShape("discord webhook", "/api/webhooks/", r"/api/webhooks/\d{5,}/[\w\-]{20,}"),
    SecretShape("teams webhook", "/webhookb2/", r"/webhookb2/[\w@\-]{30,}/[\w/\-]{30,}"),
    SecretShape(
        "zapier webhook", "hooks.zapier.com/", r"hooks\.zapier\.com/hooks/catch/\d+/[\w/]{6,}"
    ),
    SecretShape(
        "softlayer key",
        "api.softlayer.com/",
        r"api\.softlayer\.com/soap/v3(?:\.1)?/[A-Za-z0-9]{32,}",
    ),
    SecretShape(
        "authorization header",
        "authorization",
        (
            r"authorization[\\\"']{0,8}\s{0,40}[:=]\s{0,40}[\\\"']{0,8}"
            r"(?:bearer|token|ssws|apikey|digest|negotiate)\s{1,40}(?P<value>[a-z0-9_\-.=+/~]{8,})"
        ),
        is_folded=True,
    ),
    SecretShape(
        "bearer token",
        "bearer",
        (
            r"bearer\s{1,40}(?P<value>(?=[^\s\"'`,;]{0,200}\d)(?=[^\s\"'`,;]{0,200}[a-z])"
            rf"{_REFERENCE}[a-z0-9_\-.=+/~]{{20,}})"
        ),
        is_folded=True,
    ),
    SecretShape(
        "basic credentials",
        "authorization",
        (
            r"authorization[\\\"']{0,8}\s{0,40}[:=]\s{0,40}[\\\"']{0,8}basic\s{1,40}"
            r"(?P<value>[a-z0-9+/=]{8,})"
        ),
        is_folded=True,
    ),
    SecretShape(
        "password",
        "://",
        r"://(?P<value>[^\s/:@\"'<>]{0,100}:[^\s/?#\"'<>]{1,300})(?=@)",
    ),
    SecretShape(
        "secret in an address",
        "token= key= sig= signature= password= passwd= pwd= secret= auth= code=",
        (
            r"[?&](?:[a-z_\-]{0,30}(?:token|password|passwd|pwd|secret|signature)"
            r"|(?:[a-z_\-]{0,30}[_\-])?(?:api_?-?key|key|sig|auth|code))="
            r"(?P<value>(?=[^\s&#\"'<>`\\]{0,200}\d)(?=[^\s&#\"'<>`\\]{0,200}[a-z%])"
            rf"{_REFERENCE}[^\s&#\"'<>`\\$;,(){{}}\[\]]{{12,}})"
        ),
        is_folded=True,
    ),
    SecretShape(
        "named key",
        "key",
        rf"key(?={_ASSIGNMENT})(?:{_KEY_NAME}){_ASSIGNMENT}{_GAP}(?P<value>{VALUE})",
        is_folded=True,
        gate=f"key{_BEFORE_SIGN}",
    ),
    SecretShape(
        "named secret",
        "secret",
        rf"secret(?:[_\-]?key)?{_ASSIGNMENT}{_GAP}(?P<value>{VALUE})",
        is_folded=True,
    ),
    SecretShape(
        "named token",
        "token",
        (
            rf"token(?={_ASSIGNMENT})(?:(?:{_STRONG_TOKEN}){_ASSIGNMENT}{_GAP}(?={VALUE})"
            rf"|{_NOT_TOKEN}{_ASSIGNMENT}{_GAP}(?={_LONG_VALUE}))(?P<value>{VALUE}|{_LONG_VALUE})"
        ),
        is_folded=True,
        gate=f"token{_BEFORE_SIGN}",
    ),
    SecretShape(
        "named password",
        _PHRASES,
        rf"{PHRASE}{_ASSIGNMENT}{_GAP}(?P<value>{VALUE})",
        is_folded=True,
    ),
    SecretShape(
        "named password",
        "_pass pass: pass= pass\" pass' pass\\ pwd",
        (
            r"p(?:wd(?<![a-z]pwd)|ass(?:" + _LOGIN_PASS + r"|(?<![a-z_]pass)"
            r"(?=[\\\"']{0,8}[^\S\n]{0,5}[:=][^\S\n]{0,5}\\{0,7}[\"'])))"
            rf"{_ASSIGNMENT}{_GAP}(?=[\\\"']{{0,8}}(?![/~.]|[a-z]:[\\/])[^\s\"'\\]{{0,100}}\d)"
            rf"(?P<value>{VALUE})"
        ),
        is_folded=True,
    ),
    SecretShape(
        "password of an environment",
        "PASSWORD= PASSWD= PASSPHRASE=",
        r"(?:PASSWORD|PASSWD|PASSPHRASE)=(?P<value>(?![$<{%*]|your|None\b|null\b|true\b|false\b)"
        rf"[^\s\"'`,;<>(){{}}\[\]$/]{_RUN}{{5,}})(?![\"'`(){{}}\[\]])",
    ),
    SecretShape(
        "kubeconfig key",
        "client-key-data",
        rf"client-key-data{_ASSIGNMENT}{_GAP}[\\\"']{{0,8}}(?P<value>[a-z0-9+/]{{20,}}={{0,2}})",
        is_folded=True,
    ),
    SecretShape(
        "docker credentials",
        "auth",
        rf"(?<=[\"'])auth[\\\"']{{1,8}}\s{{0,40}}:{_GAP}[\\\"']{{1,8}}(?P<value>[a-z0-9+/]{{12,}}={{0,2}})",
        is_folded=True,
    ),
    SecretShape(
        "npm credentials",
        "_auth",
        rf"_auth{_ASSIGNMENT}{_GAP}(?P<value>[a-z0-9+/]{{12,}}={{0,2}})",
        is_folded=True,
    ),
    SecretShape(
        "netrc password",
        "password",
        (
            rf"(?:[.\d][\w.\-]{{0,99}}|localhost|default|machine{_NEXT_LINE}[\w\-]{{1,99}}){_NEXT_LINE}"
            rf"login{_NEXT_LINE}[^\s\"'`]{{1,100}}{_NEXT_LINE}(?:account{_NEXT_LINE}\S{{1,100}}{_NEXT_LINE})?"
            rf"password{_NEXT_LINE}(?P<value>(?![\[<$])[^\s\"'`]{{4,}})"
        ),
        is_folded=True,
    ),
    SecretShape(
        "secret option",
        "-pass -token -secret -key -apikey -accesskey -privatekey -accountkey",
        (
            r"-(?<![A-Za-z0-9_\-]-)-?(?:pass|passphrase|passwo?r?d"
            r"|(?:[a-z]{1,20}-)?(?:token|secret|password)"
            r"|(?:[a-z]{1,20}-)?(?:api|access|private|secret|account)-?key)(?:=|\s{1,40})"
            rf"(?![\d.,]{{1,40}}(?![^\s\"'`]))(?P<value>{VALUE})"
        ),
        is_folded=True,
    ),
    SecretShape(
        "login of curl",
        "curl",
        (
            r"(?<=\s)(?:-u|--user)(?:=|\s{0,40})\\?[\"']?"
            r"(?=[^\s\"':]{0,100}[a-z])(?=[^\s\"']{0,300}\d)"
            r"(?P<value>[^\s\"':$<{]{1,100}:[^\s\"'$<{]{3,})"
        ),
        is_folded=True,
    ),
    SecretShape(
        "password in words",
        _PHRASES,
        rf"{PHRASE}(?:\s{{1,40}}(?:is|was|ist|lautet|est|es)|[\u662f\u4e3a\u70ba\u306f])\s{{0,40}}:?\s{{0,40}}(?P<value>{VALUE})",
        is_folded=True,
    ),
)
