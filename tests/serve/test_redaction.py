"""No secret gets out on any path. Text that only looks random does."""

from __future__ import annotations

import json

import pytest
from mcp import MCPError

from mcp_serve.redaction import redaction
from mcp_serve.redaction.message_secrets import flatten_and_find_secrets
from mcp_serve.redaction.redaction import redact, redact_cut
from tests.security.formats import FORMATS, NEEDLES
from tests.serve.planted_secrets import HARMLESS, PLANTED, get_secret
from tests.thorough import take_share

KINDS = pytest.mark.parametrize("kind", PLANTED)


@pytest.mark.requirement("faces:redaction")
@KINDS
def test_redaction_keeps_surrounding_text(kind):
    shown = redact(f"before {PLANTED[kind]} after")
    assert get_secret(PLANTED[kind]) not in shown
    assert shown.startswith("before ")
    assert "[redacted" in shown


@pytest.mark.requirement("faces:redaction")
@pytest.mark.parametrize("text", HARMLESS)
def test_redaction_keeps_hashes_and_words(text):
    assert redact(f"a {text} b") == f"a {text} b"


@pytest.mark.requirement("faces:redaction")
@pytest.mark.parametrize("kind", ["github", "openai", "stripe", "jwt", "rsa", "telegram", "google"])
def test_cut_text_shows_no_secret(kind):
    cut = f"use {PLANTED[kind]}"[:24] + "..."
    assert redact_cut(cut).startswith("use [redacted]"), redact_cut(cut)


@pytest.mark.requirement("faces:redaction")
@pytest.mark.parametrize("kind", ["twilio", "mailgun", "mailchimp", "discord"])
def test_cut_preview_shows_no_key(kind):
    digits = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
    whole = {
        "twilio": f"SK{digits}",
        "mailgun": f"key-{digits}",
        "mailchimp": f"{digits}-us12",
        "discord": f"MTA{digits[:22]}.Xy1zA9.{digits[:27]}",
    }[kind]
    for length in range(20, len(whole)):
        assert redact_cut(f"use {whole[:length]}...").startswith("use [redacted"), length


@pytest.mark.requirement("faces:redaction")
@KINDS
def test_mixed_secret_kinds_are_redacted(kind):
    others = [planted for other, planted in PLANTED.items() if other != kind]
    shown = redact("\n".join([*others, "", PLANTED[kind], "", *others]))
    assert get_secret(PLANTED[kind]) not in shown


@pytest.mark.requirement("faces:redaction")
@pytest.mark.parametrize("says", ["=", ":", ": ", " := ", " => ", '": "', r"\": \"", "' = '"])
@pytest.mark.parametrize("name", ["api_key", "DB_PASSWORD", "client-secret", "authToken", "PASSWD"])
def test_named_secret_is_redacted_in_notations(name, says):
    shown = redact(f"a token, a password and a key: {name}{says}hunter2-hunter2")
    assert "hunter2" not in shown


AROUND = {
    "a line break in JSON": r"a\n{}\nb",
    "others in JSON": r"a\r\n{}\t",
    "an escape of code": r"x = '\x1b{}'",
    "a code of JSON": r"\u003d{}\u0026",
    "an address": "https://x.example.org/?t%3D{}%26b",
    "colours": "\x1b[1;32m{}\x1b[0m",
    "colours of grep": "\x1b[01;31m\x1b[K{}\x1b[m\x1b[K",
    "Han": "密钥是{}密钥",
    "Hangul": "키는{}입니다",
    "Cyrillic": "ключ{}ключ",
    "an accent": "é{}é",
    "emphasis": "_{}_",
    "a name": "X_{}",
    "hidden signs": "\u200b{}\ufeff",
}


@pytest.mark.requirement("faces:redaction")
@pytest.mark.parametrize("around", AROUND)
def test_secret_is_redacted_in_context(around):
    before, _, following = AROUND[around].partition("{}")
    for kind, text in FORMATS.items():
        shown = redact(f"{before}{text}{following}")
        assert not any(needle in shown for needle in NEEDLES), (kind, shown)


@pytest.mark.requirement("faces:redaction")
@pytest.mark.parametrize("times", [1, 2])
def test_secret_in_nested_json_is_redacted(times):
    for kind, text in FORMATS.items():
        message = f"it is {text}, then"
        for _ in range(times):
            message = json.dumps({"said": [message]})
        assert not any(needle in redact(message) for needle in NEEDLES), (kind, message)


@pytest.mark.requirement("faces:redaction")
@KINDS
def test_hidden_character_does_not_hide_secret(kind):
    planted, secret = PLANTED[kind], get_secret(PLANTED[kind])
    at = planted.index(secret) + 3
    shown = redact(f"before {planted[:at]}\u200b{planted[at:]} after")
    assert secret[4:12] not in shown
    assert shown.startswith("before ")


@pytest.mark.requirement("faces:redaction")
@pytest.mark.parametrize(
    "address",
    ["redis://:p4ssword@host:6379", "https://user:p@ss1word@host/x", "amqp://u:a:b1c2d3@host"],
)
def test_url_password_is_redacted_whole(address):
    assert redact(
        f"at {address} it is"
    ) == f"at {address.split(':')[0]}://[redacted: password]@" + (
        address.rpartition("@")[2] + " it is"
    )


@pytest.mark.requirement("faces:redaction")
def test_cut_private_key_is_redacted():
    header = "-----BEGIN RSA PRIVATE KEY-----"
    body = PLANTED["pkcs8"].splitlines()[1]
    assert body[:40] not in redact(f"see:\n{header}\n{body}\n{body[:30]}")
    for escape in (r"\n", r"\\n"):
        assert body[:40] not in redact(f'{{"key": "{header}{escape}{body}{escape}{body[:30]}')
    text = f'the line is "{header}" first.\nDecision: we use SQLite for the ledger of the relay.'
    assert redact(text) == text


@pytest.mark.requirement("faces:redaction")
def test_redaction_is_idempotent():
    text = "\n".join(PLANTED.values())
    assert redact(redact(text)) == redact(text)


LONG_TEXTS = [
    "a" * 100_000,
    "-----BEGIN " * 9_000,
    "eyJ" * 30_000,
    "x:" * 50_000,
    "a-" * 300_000 + " token",
    "M-" * 300_000,
    "sk-" * 200_000,
    "eyJ-" * 150_000,
    "secret:" * 100_000,
    "--token " * 100_000,
    "-a-token" * 100_000,
    "password is " * 60_000,
    "key" + " " * 500_000,
    "curl " + " -u a:" * 100_000,
    "curl -u a1" * 60_000,
    "-----BEGIN PRIVATE KEY-----" + r"\\n" * 50_000 + "!",
    "-----BEGIN PRIVATE KEY-----\n" + "Abc: " * 50_000 + "!",
    ("-----BEGIN PRIVATE KEY-----\n" + "Abc: x\n" * 7 + "Abc: " * 40) * 500,
    "\\" * 3_000_000,
    "\\n" * 500_000,
    "%41" * 300_000,
    "%" * 3_000_000,
    "\x1b" * 500_000,
    "\x1b[31m" * 200_000,
    "\x1b]" * 300_000,
    "&#" * 500_000,
    "a\x08" * 300_000,
    "a\u200b" * 300_000,
    'api_key="' * 100_000,
    'api_key=\\"' * 100_000,
    "?token=" * 150_000,
    "password " + "1." * 500_000,
    "SK0a1b2c3d4e5f60718293a4b5c6d7e8f9" * 20_000,
    ("A1b2C3d4" * 8 + "\n") * 10_000,
    "token: key api_key=, password: sk- ghp_ AKIA eyJ https://a:b secret= --token x\n" * 20_000,
]
"""Texts on which a pattern may backtrack."""


@pytest.mark.requirement("faces:redaction")
@pytest.mark.parametrize("text", take_share(LONG_TEXTS, 3), ids=str.split)
def test_redaction_time_is_bounded(text):
    """A pattern that backtracks would take minutes and exceed the time limit of the test."""
    assert redact(text)


@pytest.mark.requirement("faces:redacted-paths")
@pytest.mark.anyio
async def test_answers_contain_no_planted_key(db, call, refused):
    for number, (kind, planted) in enumerate(PLANTED.items()):
        text = f"words before {planted} and needle{number} after it, {'filler ' * 60}"
        db.append_message(f"s{number:02}", "user", text, create={"source": "cli"})
        called = {"name": "run", "arguments": json.dumps({"cmd": planted})}
        calls = [{"id": "c", "type": "function", "function": called}]
        db.append_message(f"s{number:02}", "assistant", f"{planted}", tool_calls=calls)
        db.append_message(f"s{number:02}", "tool", planted, tool_name="run", tool_call_id="c")
        db.set_session_title(f"s{number:02}", f"{kind}: {planted.splitlines()[0]}"[:99])
    start = (await call("events_wait", timeout_s=0))["cursor"]
    db.append_message("s00", "user", "\n".join(PLANTED.values()))
    message = [await call("events_wait", cursor=start, timeout_s=5), await call("routes_list")]
    message += [await call("sessions_list", limit=100, detail=d) for d in ("concise", "detailed")]
    for number in range(len(PLANTED)):
        message.append(await call("sessions_read", session=f"s{number:02}", detail="detailed"))
        for detail in ("concise", "detailed"):
            message.append(await call("sessions_search", query=f"needle{number}", detail=detail))
    everything = json.dumps(message)
    seen = [
        everything[max(0, at - 60) : at + 20]
        for part in {get_secret(planted) for planted in PLANTED.values()}
        for at in [everything.find(part)]
        if at >= 0
    ]
    assert seen == []


@pytest.mark.requirement("faces:redacted-paths")
@pytest.mark.anyio
@KINDS
async def test_answers_do_not_echo_secret_arguments(client, kind):
    secret = get_secret(PLANTED[kind])
    for request in (
        client.call_tool(secret, {}),
        client.get_prompt(secret, {}),
        client.get_prompt("catch_up", {PLANTED[kind]: "x"}),
    ):
        with pytest.raises(MCPError) as caught:
            await request
        assert secret[:60] not in caught.value.error.message
    prompt = await client.get_prompt("catch_up", {"session": PLANTED[kind][:400]})
    assert secret[:60] not in prompt.messages[0].content.text


@pytest.mark.requirement("faces:redacted-paths")
@pytest.mark.anyio
@KINDS
async def test_secret_query_finds_nothing(db, call, kind):
    planted = PLANTED[kind]
    db.append_message("s1", "user", planted, create={"source": "cli"})
    assert (await call("sessions_search", query=planted[:1900]))["hits"] == []
    assert (await call("sessions_list", query=planted[:1900]))["sessions"] == []


@pytest.mark.requirement("faces:redacted-paths")
@pytest.mark.anyio
@pytest.mark.options(redact=False)
async def test_unredacted_server_shows_secrets(db, call):
    db.append_message("s1", "user", PLANTED["github"], create={"source": "cli"})
    page = await call("sessions_read", session="s1")
    assert page["messages"][0]["text"] == PLANTED["github"]


SECRET = "Zx9Qw3Rt7Yp1Lk5Jh8"


def _make_tool_call(name, **arguments):
    called = {"name": name, "arguments": json.dumps(arguments)}
    return [{"id": "c", "type": "function", "function": called}]


@pytest.mark.requirement("faces:redacted-paths")
@pytest.mark.anyio
@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "/x/.env", "content": f"# walrus\nDB_PASSWORD = {SECRET} walrus"},
        {"password": SECRET, "note": "walrus"},
        {"text": "-----BEGIN RSA PRIVATE KEY-----\n" + f"{SECRET}\n" * 20 + "walrus"},
    ],
    ids=["assigned", "named", "key"],
)
async def test_tool_argument_snippet_shows_no_secret(db, call, arguments):
    calls = _make_tool_call("write_file", **arguments)
    db.append_message("s1", "assistant", "w", tool_calls=calls, create={"source": "cli"})
    for query in ("walrus", f"{SECRET[:9]}*"):
        for detail in ("concise", "detailed"):
            assert SECRET not in json.dumps(
                await call("sessions_search", query=query, detail=detail)
            )
    assert (await call("sessions_search", query="walrus"))["hits"]


@pytest.mark.requirement("faces:redacted-paths")
@pytest.mark.anyio
async def test_snippet_hides_disguised_secret(db, call):
    text = f"sk-ant-api03-\u200b{SECRET}Gf2Ds6Az4 walrus"
    db.append_message("s1", "user", text, create={"source": "cli"})
    (hit,) = (await call("sessions_search", query="walrus"))["hits"]
    assert SECRET not in hit["snippet"]


@pytest.mark.requirement("faces:redacted-paths")
@pytest.mark.anyio
async def test_tool_name_shows_no_secret(db, call):
    calls = _make_tool_call(f"sk-ant-api03-{SECRET}", a=1)
    db.append_message("s1", "assistant", "x", tool_calls=calls, create={"source": "cli"})
    assert SECRET not in json.dumps(await call("sessions_read", session="s1"))


@pytest.mark.requirement("faces:redacted-paths")
@pytest.mark.anyio
async def test_plan_reason_shows_no_secret(db, call):
    create = {"source": "cli", "started_at": 1_600_000_000}
    db.append_message("s1", "user", "x", timestamp=1_600_000_000, create=create)
    db.end_session("s1", f"password={SECRET}")
    planned = await call("sessions_prune", sessions=["s1"])
    assert planned["items"][0]["why"]
    assert SECRET not in json.dumps(planned)
    answer = await call("sessions_prune", plan=planned["plan"])
    assert SECRET not in json.dumps(answer)


@pytest.mark.requirement("faces:redacted-paths")
@pytest.mark.anyio
async def test_brief_contains_no_secret(db, call):
    for number in range(60):
        text = f"ABC-{number}: port {8000 + number}\nexport DB_PASSWORD={SECRET}{number}\n"
        text += f"use https://deploy:{SECRET}{number}@git.example.org/repo\n"
        text += f"run `curl -H 'Authorization: Bearer {SECRET}{number}' https://example.org`\n"
        db.append_message("s1", "user", text + "well, " * 200, create={"source": "cli"})
        lines = f"{SECRET}{SECRET}{number}\n" * 2
        key = f"-----BEGIN RSA PRIVATE KEY-----\n{lines}-----END RSA PRIVATE KEY-----\n"
        text = f"AWS_SECRET_ACCESS_KEY={SECRET}{SECRET}{number}\n{key}"
        db.append_message("s1", "assistant", text)
    planned = await call("sessions_compress", session="s1", keep_last=10)
    assert planned["brief"]["must_survive"]
    assert planned["brief"]["digest"]
    assert SECRET not in json.dumps(planned)


@pytest.mark.requirement("faces:redacted-paths")
@pytest.mark.anyio
async def test_resource_name_has_no_hidden_characters(db, client):
    text = "sk-ant-api03-\u200b" + f"{SECRET} \u202eevil\x1b[31m"
    db.append_message("s1", "user", text, create={"source": "cli"})
    first = (await client.list_resources()).resources[0]
    assert SECRET not in first.name
    assert not {"\u202e", "\x1b", "\u200b"} & set(first.name)


@pytest.mark.requirement("faces:redaction")
@pytest.mark.parametrize("text", ["DB_PASSWORD=aB3$dE5fG7hJ9kLm", "password: x1$yyyyyyyy"])
def test_value_with_dollar_is_redacted(text):
    shown = redact(text)
    assert redaction.MARK in shown
    assert text[-8:] not in shown


@pytest.mark.requirement("faces:redaction")
@pytest.mark.parametrize("text", ["api_key=$SECRET_FROM_ENV1", "PASSWORD=${DB_PASS_1}"])
def test_variable_name_is_kept(text):
    assert redact(text) == text


@pytest.mark.requirement("faces:redacted-paths")
@pytest.mark.anyio
@pytest.mark.parametrize("value", ["{}", "{} and more"])
@pytest.mark.parametrize(
    "arguments", ['{{"password": "{}"}}', '{{"a": [{{"db_password": "{}"}}]}}']
)
async def test_named_call_value_stays_out_of_snippet(db, call, value, arguments):
    secret = "hunter2-hunter2"
    function = {"name": "login", "arguments": arguments.format(value.format(secret))}
    calls = [{"id": "c", "type": "function", "function": function}]
    db.append_message("s1", "assistant", "needle", tool_calls=calls, create={"source": "cli"})
    for detail in ("concise", "detailed"):
        for query in ("needle", "hunter2"):
            result = await call("sessions_search", query=query, detail=detail)
            assert secret not in json.dumps(result)
        read = await call("sessions_read", session="s1", detail=detail)
        assert secret not in json.dumps(read)


@pytest.mark.requirement("faces:redaction")
def test_large_tool_call_is_redacted_quickly():
    """Searching each value in each secret would take minutes and exceed the time limit."""
    many = [{"password": f"hunter2-{number:06}"} for number in range(20_000)]
    function = {"name": "put", "arguments": json.dumps([many, list(range(300_000))])}
    row = {"content": "", "tool_calls": [{"function": function}]}
    shown, secrets = flatten_and_find_secrets(row)
    assert len(secrets) == len(many)
    assert all(shown[start:stop].startswith("hunter2-") for start, stop in secrets)


_PASSWORD = "Tr0ub4dor!x9"
_KEY = "q7RkZp2WvX9mTn4LsB8c"


@pytest.mark.parametrize(
    "notation",
    [
        "<password>{}</password>",
        "<apiKey>{}</apiKey>",
        '<add key="Password" value="{}"/>',
        "**Password:** {}",
        "**Password**: `{}`",
        "API key: {}",
        "DB_PASS={}",
        "MYSQL_PWD={}",
        "Server=db;Uid=sa;Pwd={};Encrypt=yes",
        'auth: {{ user: "bob", pass: "{}" }}',
        "\u5bc6\u7801\u662f {}",
        "machine h login bob password {}",
    ],
)
@pytest.mark.parametrize("value", [_PASSWORD, _KEY])
def test_named_value_is_redacted_in_more_notations(notation, value):
    shown = redact(notation.format(value))
    assert "[redacted: " in shown
    assert value[:6] not in shown


@pytest.mark.parametrize(
    "text",
    [
        "--- PASS: TestFoo2 (0.00s)",
        "PASS: tests/test-1.sh",
        "PWD=/home/user1/app",
        '"pwd": "C:\\\\Users\\\\bob1"',
        "single_pass=True12345",
        "first_pass: 0.1234567",
        '"pass": "yes-all"',
        "List<Token>tokens1234",
        "password: **at least 12 chars**",
        "**Token** usage: 1234567 tokens",
    ],
)
def test_innocent_name_before_value_stays(text):
    assert redact(text) == text


@pytest.mark.parametrize(
    "color",
    [r"\u001b[01;31m", r"\x1b[31m", r"\\u001b[31m", r"\033[31m", r"\e[31m", "&#27;[31m", "^[[31m"],
)
@pytest.mark.parametrize("following", "78")
def test_escaped_color_before_digit_hides_nothing(color, following):
    digits = "0a1b2c3d4e5f60718293a4b5c6d7e8f9a0b1c2d3"
    text = f"dapi{digits[:15]}{color}{following}{digits[16:32]} e2b_{digits[:9]}{color}"
    shown = redact(f"{text}{following}{digits[:30]} ends")
    assert shown == "[redacted: databricks token] [redacted: e2b key] ends"


@pytest.mark.parametrize("margin", ["> ", "+", "{:6}\t", "{:6}\u2192", "{:3} | "])
def test_secret_file_with_margin_is_redacted(margin):
    body = ["Zx9Qw3Rt7Yp1Lk5Jh8Gf2Ds6Az4Xc0Vb"] * 3
    file = [
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        *body,
        "",
        "machine api.example.com",
        f"  login bob\n  password {_PASSWORD}",
    ]
    lines = "\n".join(file).split("\n")
    shown = redact("\n".join(margin.format(number) + line for number, line in enumerate(lines, 1)))
    assert "Zx9Qw3" not in shown
    assert _PASSWORD not in shown


def test_azure_secret_after_cjk_is_redacted():
    assert redact("\u5bc6\u94a5fCJ8Q~wYPMT120ZxPYlVpHDajKGCO~yhg0AZmGYY\u3002") == (
        "\u5bc6\u94a5[redacted: azure client secret]\u3002"
    )


@pytest.mark.requirement("faces:redaction")
def test_repeated_text_is_redacted_again():
    text = f"before {PLANTED['github']} after. {'More. ' * 100}"
    secret = get_secret(PLANTED["github"])
    assert redact(text) == redact(text)
    assert secret not in redact(text)


def test_cached_texts_are_bounded():
    for number in range(300):
        redact(f"{number} " + "long text " * 1000)
        assert redaction.LATEST_TEXTS.chars <= redaction.MAX_CACHED_CHARS
    before = redaction.LATEST_TEXTS.chars
    redact("one very long text " * 10_000)
    assert redaction.LATEST_TEXTS.chars == before
