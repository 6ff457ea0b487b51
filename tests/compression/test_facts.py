"""Forms and languages of facts, and linear time to find them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_core.compression.extractive import facts, tokenize
from session_core.compression.extractive.facts import Fact


def find_texts(text: str, kind: str) -> list[str]:
    return [fact.text for fact in facts.find_facts(text) if fact.kind == kind]


@pytest.mark.parametrize(
    "sentence",
    [
        "We agreed to keep the old importer until June.",
        "From now on nobody merges without a second pair of eyes.",
        "Wir haben uns entschieden, den Dienst abzuschalten.",
        "Acordamos usar una sola cola para todo.",
        "On part sur une base par client.",
        "我们决定先迁移账单服务。",
        "ログは三か月だけ保存することにした。",
        "Решили оставить старый формат.",
    ],
)
def test_decision_includes_whole_sentence(sentence: str) -> None:
    assert find_texts(sentence, "decision") == [sentence]


@pytest.mark.parametrize(
    "sentence",
    [
        "TODO: drop the shadow table",
        "- [ ] ask legal about the retention clause",
        "We still need to renew the certificate.",
        "Noch offen: Rechte der Bots prüfen.",
        "Falta revisar los permisos.",
        "Il reste à traduire la page d'accueil.",
        "待办\uff1a补充回滚脚本。",
        "次のステップ\uff1a負荷試験を回す。",
    ],
)
def test_task_includes_whole_sentence(sentence: str) -> None:
    assert find_texts(sentence, "task") == [sentence]


@pytest.mark.parametrize(
    ("lead", "kind"),
    [
        ("Next steps:", "task"),
        ("## Open points", "task"),
        ("**Still open:**", "task"),
        ("Offene Punkte:", "task"),
        ("下一步\uff1a", "task"),
        ("Decisions:", "decision"),
        ("We agreed on this:", "decision"),
    ],
)
@pytest.mark.parametrize("mark", ["- ", "* ", "1. ", "2) ", "- [ ] "])
def test_list_items_take_kind_of_heading(lead: str, kind: str, mark: str) -> None:
    text = f"{lead}\n\n{mark}bolt the relay\n{mark}mail Jean-Luc\n\nThe lamp is blue.\n{mark}a cat"
    said = [
        fact for fact in facts.find_facts(text, prose=True) if fact.kind in ("decision", "task")
    ]
    items = [fact.text.removeprefix("- [ ] ") for fact in said][1:]
    assert items[:2] == ["bolt the relay", "mail Jean-Luc"]
    if "[" not in mark:
        assert {fact.kind for fact in said} == {kind}
        assert len(items) == 2
    assert all(text[fact.position : fact.end] == fact.text for fact in said)


def test_tool_lists_are_not_tasks() -> None:
    assert find_texts("Next steps:\n- bolt the relay", "task") == ["Next steps:"]


def test_completed_list_item_is_no_task() -> None:
    text = "Next steps:\n- [x] bolt the relay\n- mail Jean-Luc"
    tasks = [fact.text for fact in facts.find_facts(text, prose=True) if fact.kind == "task"]
    assert tasks == ["Next steps:", "mail Jean-Luc"]


def test_decision_ends_with_sentence() -> None:
    text = "I looked around. We decided to ship v2.1 to eu-west-1 first. Nothing else happened."
    assert find_texts(text, "decision") == ["We decided to ship v2.1 to eu-west-1 first."]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("look into /opt/relay/etc/relay.toml.", "/opt/relay/etc/relay.toml"),
        ("it fails in lib/net/socket.rs:88:12, twice", "lib/net/socket.rs:88:12"),
        ("(see ./scripts/seed)", "./scripts/seed"),
        ("open ~/notes/plan.md now", "~/notes/plan.md"),
        (r"it is C:\Users\eva\My Files\a.docx, I think", r"C:\Users\eva\My Files\a.docx"),
        (r"on \\filer\team\2024\q3.xlsx", r"\\filer\team\2024\q3.xlsx"),
        ('the file "/mnt/big disk/raw/take 2.wav" is broken', "/mnt/big disk/raw/take 2.wav"),
        ("设置在/etc/relay/main.conf里", "/etc/relay/main.conf"),
        ("見て /共有/報告/七月.xlsx を", "/共有/報告/七月.xlsx"),
        ("only pyproject.toml changed", "pyproject.toml"),
        ("the route is app/[team]/page.tsx", "app/[team]/page.tsx"),
    ],
)
def test_path_excludes_surrounding_text(text: str, path: str) -> None:
    assert find_texts(text, "path") == [path]


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("$ terraform apply -target=module.vpc", "terraform apply -target=module.vpc"),
        ("eva@box:~/src$ ls -la", "ls -la"),
        (r"PS C:\src> Get-ChildItem -Recurse", "Get-ChildItem -Recurse"),
        ("Please run `make docs` again.", "make docs"),
        ("then git rebase --onto main feat~3 feat.", "git rebase --onto main feat~3 feat"),
        ("Führe docker compose pull aus.", "docker compose pull aus"),
        ("```bash\n./deploy.sh prod\n```", "./deploy.sh prod"),
        ("PGHOST=db7 psql -c 'select 1'", "PGHOST=db7 psql -c 'select 1'"),
    ],
)
def test_command_found_after_prompt_and_in_prose(text: str, command: str) -> None:
    assert command in find_texts(text, "command")


@pytest.mark.parametrize(
    "text", ["make sure that it works", "go to the next page", "git is a tool that I like a lot"]
)
def test_program_name_as_word_is_no_command(text: str) -> None:
    assert find_texts(text, "command") == []


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("see https://wiki.example/a_(b)?x=1#y.", "https://wiki.example/a_(b)?x=1#y"),
        ("(https://wiki.example/a)", "https://wiki.example/a"),
        ("at https://wiki.example/a_(b)", "https://wiki.example/a_(b)"),
        ("dsn postgres://app@db:5432/main; ok", "postgres://app@db:5432/main"),
        ("参照https://wiki.example/ok。", "https://wiki.example/ok"),
    ],
)
def test_url_excludes_punctuation(text: str, url: str) -> None:
    assert find_texts(text, "url") == [url]


@pytest.mark.parametrize(
    "name",
    [
        "6c1f0f9e-55d2-4c0a-9a3f-0d1f5a7f2b11",
        "9f8e7d6c5b4a",
        "PAY-1182",
        "#4711",
        "v3.0.0-beta.2",
        "requests==2.31.0",
        "cache_ttl_seconds",
        "orders.created.v1",
        "ingest-worker-eu",
        "RetryPolicy",
        "E1102",
        "0x80070005",
        "RELAY_TOKEN",
        "LOG_LEVEL=debug",
        "db7.internal:6432",
        "10.4.0.17",
        "eva@example.org",
        "--no-verify",
    ],
)
def test_identifier_is_found_whole(name: str) -> None:
    assert find_texts(f"it was {name}, as I said", "identifier") == [name]


@pytest.mark.parametrize("text", ["and/or", "e.g. this", "it isn't", "a well-known thing", "I/O"])
def test_ordinary_words_are_not_identifiers(text: str) -> None:
    assert facts.find_facts(text) == []


def test_date_with_slashes_is_no_path() -> None:
    assert find_texts("it was on 12/25/2024", "path") == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("it took 840 ms", "840 ms"),
        ("about 2.5GB of it", "2.5GB"),
        ("costs €1,250.00 a month", "€1,250.00"),
        ("down by 37 %", "37 %"),
        ("with 12 replicas", "12 replicas"),
        ("上限は250件です", "250件"),
        ("the limit is 7", "7"),
        ("since 2025-11-03T08:15:00Z", "2025-11-03T08:15:00Z"),
    ],
)
def test_number_includes_unit(text: str, number: str) -> None:
    assert find_texts(text, "number") == [number]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("KeyError: 'tenant'", "KeyError: 'tenant'"),
        ("sqlalchemy.exc.NoResultFound: none", "sqlalchemy.exc.NoResultFound: none"),
        ("2026-02-01 10:00:00,123 ERROR relay: gave up", "ERROR relay: gave up"),
        ("error[E0382]: use of moved value: `tx`", "error[E0382]: use of moved value: `tx`"),
        ("fatal: not a git repository", "fatal: not a git repository"),
        ("It died. The job exited with code 137. Odd.", "The job exited with code 137."),
        ("bash: relayctl: command not found", "bash: relayctl: command not found"),
        ("Fehler: Verbindung verloren", "Fehler: Verbindung verloren"),
        ("错误\uff1a连接被拒绝", "错误\uff1a连接被拒绝"),
    ],
)
def test_error_starts_at_error_name(text: str, error: str) -> None:
    assert find_texts(text, "error") == [error]


def test_line_without_error_has_no_errors() -> None:
    assert (
        find_texts("0 errors, all tests passed, error handling is done in errors.py", "error") == []
    )


def test_log_timestamp_is_no_fact() -> None:
    assert facts.find_facts("2026-02-01T10:00:00.123Z all is well") == []


def test_facts_can_be_nested() -> None:
    text = "We decided to read /etc/relay.conf once."
    assert facts.find_facts(text) == [
        Fact("decision", text, 0),
        Fact("path", "/etc/relay.conf", text.index("/etc")),
    ]


@given(st.text(max_size=300))
def test_fact_positions_match_text(text: str) -> None:
    for fact in facts.find_facts(text):
        assert text[fact.position : fact.end] == fact.text
        assert fact.text.strip()


ALPHABET = "a1 ./\\:-_=@$`\"'#()[]<>|,\n决定。"


@given(st.text(alphabet=ALPHABET, max_size=400))
def test_symbol_fact_positions_match_text(text: str) -> None:
    assert all(text[fact.position : fact.end] == fact.text for fact in facts.find_facts(text))


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "1",
        "/a",
        "\\a",
        "a.",
        "a:",
        "error a:",
        "`a b ",
        "http://",
        "A. ",
        "exit code ",
        "(",
        "_",
    ],
)
def test_endless_line_gives_few_short_pieces(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    pieces = [line for _, line in facts.split_lines(text)]
    assert sum(map(len, pieces)) <= facts.MAX_TEXT_CHARS
    assert max(map(len, pieces)) <= facts.MAX_PIECE_CHARS
    assert len(pieces) <= 2 * facts.MAX_TEXT_CHARS / facts.MAX_PIECE_CHARS + 2


def test_long_text_is_read_at_both_ends() -> None:
    text = "first-marker-1\n" + "some filler words here\n" * 60_000 + "last-marker-2"
    assert len(text) > facts.MAX_TEXT_CHARS
    assert find_texts(text, "identifier") == ["first-marker-1", "last-marker-2"]


def test_sentence_survives_code_and_abbreviations() -> None:
    line = "Use `a. B` here, e.g. Tuesday, or z.B. Montag. Then stop! 好。行。"
    parts = [line[begin:end] for begin, end in tokenize.find_sentence_spans(line)]
    assert parts == ["Use `a. B` here, e.g. Tuesday, or z.B. Montag.", "Then stop!", "好。", "行。"]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("see docs/手順-roof.md there", "docs/手順-roof.md"),
        ("手順はdocs/手順.mdにある", "docs/手順.md"),
        ("**../roof-deck/plan.md** is old", "../roof-deck/plan.md"),
        ("`.github/workflows/roof.yml` runs", ".github/workflows/roof.yml"),
    ],
)
def test_path_includes_first_folder(text: str, path: str) -> None:
    assert find_texts(text, "path") == [path]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("listening on [fd00::7]:8443 now", "[fd00::7]:8443"),
        ("it is on lena/roof-deck since noon", "lena/roof-deck"),
    ],
)
def test_bracketed_addresses_and_branches_are_names(text: str, name: str) -> None:
    assert find_texts(text, "identifier") == [name]


@pytest.mark.parametrize("text", ["read and/or write", "TCP/IP is fine", "[12:30]:45 was the time"])
def test_alternatives_and_times_are_not_names(text: str) -> None:
    assert find_texts(text, "identifier") == []


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("ROOF_LIMIT_S = 40", "ROOF_LIMIT_S = 40"),
        ("  const maxRoofs = 12;", "const maxRoofs = 12"),
        ("export RETRIES_MAX=3", "RETRIES_MAX=3"),
    ],
)
def test_constant_includes_value(text: str, setting: str) -> None:
    assert setting in find_texts(text, "number")


def test_secret_constant_is_no_fact() -> None:
    assert find_texts('API_KEY_OLD = "hunter2hunter2"', "number") == []


@pytest.mark.parametrize(
    "line",
    [
        '{"id": "4", "content": "paint the roof", "status": "in_progress"}',
        '{"status": "pending", "title": "paint the roof"},',
    ],
)
def test_open_json_item_is_text_only(line: str) -> None:
    assert [(fact.kind, fact.text) for fact in facts.find_facts(line)] == [
        ("task", "paint the roof")
    ]


def test_long_text_next_to_item_is_read() -> None:
    line = '{"title": "paint it", "state": "open", "html_url": "https://roof.test/issues/41", '
    line += '"body": "see lib/roof/deck.rs:14 and the note of the builder of the second house"}'
    assert find_texts(line, "task") == ["paint it"]
    assert find_texts(line, "url") == ["https://roof.test/issues/41"]


def test_completed_item_is_no_task() -> None:
    assert find_texts('{"content": "paint the roof", "status": "completed"}', "task") == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('It says "no space left on device" and stops.', "no space left on device"),
        ("it ends with `panic: index out of range [4]` here", "panic: index out of range [4]"),
        (
            "It ends with `error[E0502]: cannot borrow `roof` as mutable` again.",
            "error[E0502]: cannot borrow `roof` as mutable",
        ),
        ('"last_error": "the roof does not answer",', "the roof does not answer"),
        ('"error": {"code": 4, "message": "roof is shut"}', "roof is shut"),
        ('{"level":"fatal","svc":"roof","msg":"gave up on the deck"}', "gave up on the deck"),
    ],
)
def test_quoted_error_ends_with_quotation(text: str, error: str) -> None:
    assert find_texts(text, "error") == [error]


def test_prose_errors_are_found_per_sentence() -> None:
    text = 'It says "unexpected token in a.json". Later it says "disk full on the roof". Odd.'
    errors = [fact.text for fact in facts.find_facts(text, prose=True) if fact.kind == "error"]
    assert errors == ["unexpected token in a.json", "disk full on the roof"]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("The limit is 40 s. More of it later.", "The limit is 40 s."),
        ("that was the last one. the roof is next", "that was the last one."),
        ("Ask A. Lovelace about it.", "Ask A. Lovelace about it."),
    ],
)
def test_unit_ends_sentence_but_initial_not(text: str, first: str) -> None:
    at, end = tokenize.find_sentence_spans(text)[0]
    assert text[at:end] == first
