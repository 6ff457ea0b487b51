"""Searches that must give the same hits on SQLite and on PostgreSQL, over one seeded corpus.

`python -m tests.state.postgres.equal_searches` copies a larger corpus to servers with locale C and
with UTF-8, asks all of them, and prints a table.
"""

# ruff: noqa: RUF001 -- letters of many scripts are the point of this module

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from session_core import SessionDB, StateDatabase
from session_core.maintenance import copy_home
from session_core.state.postgres.session_db import PostgresDB
from tests import postgres_server
from tests.bench.text import TextWriter

SEED = 21
QUERIES_OF_KIND = 25
LOCALES = ("C", "C.UTF-8")
_PAGES, _PAGE_LENGTH = 2, 10
_DAY_S = 86_400.0
_BEGIN = 1_700_000_000.0

SENTENCES = (
    "Die Größe der Straße ändert sich über Nacht, schöne Grüße aus Köln",
    "Le café est fermé à Noël, où êtes-vous allés déjeuner",
    "Tiếng Việt rất hay, chúng tôi đang kiểm tra cơ sở dữ liệu",
    "İstanbul'da ışık söndü, çağrı yapıldı",
    "Проверь миграцию базы данных, ёлка стоит во дворе",
    "قاعدة البيانات جاهزة للترحيل غداً",
    "हिन्दी भाषा में डेटाबेस का स्थानांतरण",
    "ในประเทศไทยมีงานย้ายฐานข้อมูล",
    "데이터베이스 마이그레이션을 서버에서 확인했습니다",
    "データベースの移行を確認して、設定ファイルを更新する",
    "我们讨论数据库架构的决定，检查索引，然后回滚到之前的版本",
    "使用python开发数据库，端口8080已被占用",
    "ship it 🚀 now, naïve coöperation ﬁxed in Ａｐｐ",
    "ΑΘΗΝΑ και Θεσσαλονίκη, ο λόγος του σφάλματος",
    "see src/app/main.py:42, request a1b2-c3 failed with E_CONN_RESET ¯\\_(ツ)_/¯",
)
_QUESTIONS = (
    "what did we decide about {}?",
    "why did the {} fail with {}?",
    "how do I change {} in {}?",
    "which {} did we choose for {} and {}?",
    "when was {} moved",
)
_SYNTAX = (
    "{} AND {}",
    "{} OR {}",
    "{} NOT {}",
    "({} OR {}) AND {}",
    "{} -{}",
    "{:.3}*",
    "{} {:.4}*",
    '"{} {}"*',
)


@dataclass(frozen=True)
class SearchCase:
    """A query of a kind, with its options."""

    kind: str
    query: str
    options: dict[str, Any] = field(default_factory=dict)


class Corpus:
    """Messages in many scripts, in conversations with all that a search has to respect."""

    def __init__(self, messages: int) -> None:
        self.texts: list[str] = []
        self._messages = messages
        self._random = random.Random(SEED)
        self._writer = TextWriter(SEED)
        self._time = _BEGIN

    def fill(self, db: StateDatabase) -> None:
        """Store the corpus in an empty home."""
        number = 0
        with db.transaction():
            while len(self.texts) < self._messages:
                self._add_conversation(db, number)
                number += 1

    def _add_conversation(self, db: StateDatabase, number: int) -> None:
        name, kind = f"s{number:05}", number % 10
        source = ("cli", "telegram", "discord")[number % 3]
        db.create_session(name, source, cwd=f"/srv/app{number % 4}", started_at=self._time)
        if number % 4 == 0:
            db.set_session_title(name, f"{self._writer.write_sentence()[:60]} {number}")
        for _ in range(self._random.randint(2, 24)):
            self._add_message(db, name)
        if kind == 1:
            db.rewind_to_message(name, db.append_message(name, "user", self._write_text("user")))
        elif kind == 2:
            db.archive_and_compact(name, [{"role": "user", "content": self._write_text("user")}])
        elif kind == 3:
            db.end_session(name, "compression")
            later = f"{name}-2"
            db.create_session(later, source, parent_session_id=name, started_at=self._time)
            for _ in range(3):
                self._add_message(db, later)
        elif kind == 4:
            db.end_session(name, "cli_close")
        elif kind == 5:
            db.set_session_archived(name, archived=True)

    def _add_message(self, db: StateDatabase, session: str) -> int:
        role = self._random.choice(("user", "assistant", "assistant", "tool"))
        text = self._write_text(role)
        self.texts.append(text)
        self._time += self._random.random() * _DAY_S
        columns: dict[str, Any] = {"timestamp": self._time}
        if role == "tool":
            columns["tool_name"] = self._random.choice(("terminal", "read_file", "datei_öffnen"))
        elif role == "assistant" and self._random.random() < 0.3:
            arguments = {"path": self._writer.make_path(), "note": self._random.choice(SENTENCES)}
            function = {"name": "write_file", "arguments": str(arguments).replace("'", '"')}
            columns["tool_calls"] = [{"id": self._writer.make_hex_id(8), "function": function}]
        content: Any = text
        if self._random.random() < 0.1:
            content = [
                {"type": "text", "text": text},
                {"type": "text", "text": "nul \0 half \ud83d"},
            ]
        return int(db.append_message(session, role, content, **columns))

    def _write_text(self, role: str) -> str:
        if self._random.random() < 0.3:
            number = self._random.randint(1, 3)
            return ". ".join(self._random.sample(SENTENCES, number))
        return self._writer.write_message(role, 300)


def list_cases(texts: Sequence[str]) -> list[SearchCase]:
    """Return the searches, drawn from the texts of a corpus."""
    draw = _QueryWriter(texts)
    kinds: dict[str, Callable[[], SearchCase]] = {
        "words": draw.make_words,
        "pairs": draw.make_pair,
        "accents": draw.make_accents,
        "phrases": draw.make_phrase,
        "substrings": draw.make_substring,
        "questions": draw.make_question,
        "syntax": draw.make_syntax,
        "filters": draw.make_filtered,
    }
    return [case for make in kinds.values() for case in _take_different(make)]


def _take_different(make: Callable[[], SearchCase]) -> Iterator[SearchCase]:
    """Yield different searches of a kind."""
    seen: set[str] = set()
    while len(seen) < QUERIES_OF_KIND:
        case = make()
        if case.query.strip() and repr(case) not in seen:
            seen.add(repr(case))
            yield case


class _QueryWriter:
    """Draws queries from texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._random = random.Random(SEED + 1)
        self._texts = texts

    def _draw_words(self, count: int) -> list[str]:
        while True:
            words = re.findall(r"\w{3,}", self._random.choice(self._texts))
            if len(words) >= count:
                return self._random.sample(words, count)

    def make_words(self) -> SearchCase:
        """Return one to four words of one message."""
        return SearchCase("words", " ".join(self._draw_words(self._random.randint(1, 4))))

    def make_pair(self) -> SearchCase:
        """Return one to three neighbouring characters of a script without spaces."""
        runs = re.findall(
            "[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff]{2,}", self._draw_sentences()
        )
        run = self._random.choice(runs)
        start = self._random.randrange(len(run) - 1)
        return SearchCase("pairs", run[start : start + self._random.randint(1, 3)])

    def make_accents(self) -> SearchCase:
        """Return a word with other case, accents or composition than in its text."""
        words = [
            word for word in re.findall(r"\w{3,}", self._draw_sentences()) if not word.isascii()
        ]
        word = self._random.choice(words)
        bare = "".join(
            part for part in unicodedata.normalize("NFD", word) if not unicodedata.combining(part)
        )
        forms = (word.upper(), bare, unicodedata.normalize("NFD", word), word.title())
        return SearchCase("accents", self._random.choice(forms))

    def make_phrase(self) -> SearchCase:
        """Return a quoted part of a text, sometimes with words in another order."""
        words = self._random.choice(self._texts).split()
        start = self._random.randrange(len(words))
        part = words[start : start + self._random.randint(2, 4)]
        if self._random.random() < 0.2:
            part.reverse()
        return SearchCase("phrases", '"' + " ".join(part).replace('"', "") + '"')

    def make_substring(self) -> SearchCase:
        """Return a part of a text from any character to any other."""
        text = self._random.choice(self._texts)
        start = self._random.randrange(max(1, len(text) - 8))
        part = text[start : start + self._random.randint(2, 8)]
        return SearchCase("substrings", part, {"mode": "substring"})

    def make_question(self) -> SearchCase:
        """Return a plain question about words of one message."""
        question = self._random.choice(_QUESTIONS)
        return SearchCase("questions", question.format(*self._draw_words(3)))

    def make_syntax(self) -> SearchCase:
        """Return a query with operators, prefixes or words to exclude."""
        return SearchCase("syntax", self._random.choice(_SYNTAX).format(*self._draw_words(3)))

    def make_filtered(self) -> SearchCase:
        """Return a word with a filter, an order or a unit."""
        since = _BEGIN + self._random.random() * len(self._texts) * _DAY_S / 3
        options: dict[str, Any] = self._random.choice(
            (
                {"source": ["telegram"]},
                {"exclude_source": ["cli", "discord"]},
                {"roles": ["user"]},
                {"project": "/srv/app1"},
                {"status": self._random.choice(("open", "ended", "archived", "all"))},
                {"since": since},
                {"until": since},
                {"order": "newest"},
                {"order": "oldest"},
                {"per": "message"},
                {"tool": self._random.choice(("Terminal", "write_file", "datei_öffnen"))},
                {"session": f"s{self._random.randrange(1, 20):05}", "per": "message"},
            )
        )
        return SearchCase(
            "filters", " ".join(self._draw_words(self._random.randint(1, 2))), options
        )

    def _draw_sentences(self) -> str:
        return " ".join(SENTENCES)


def search_pages(db: StateDatabase, case: SearchCase) -> list[Any]:
    """Return all that the first pages of a search answer, apart from their cursors."""
    pages: list[Any] = []
    cursor = None
    for _ in range(_PAGES):
        result = db.search(case.query, limit=_PAGE_LENGTH, cursor=cursor, **case.options)
        hits = [{**asdict(hit), "score": round(hit.score, 9)} for hit in result.hits]
        cursor = result.next_cursor
        pages.append((hits, result.matched, result.searched_back_to, cursor is not None))
        if cursor is None:
            break
    return pages


def list_found(pages: Sequence[Any]) -> list[tuple[int, str]]:
    """Return the hits of the pages of a search, in their order."""
    return [(hit["message_id"], hit["session_id"]) for hits, *_ in pages for hit in hits]


def main() -> int:
    """Print a row for each kind of query and locale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=3000)
    parser.add_argument("--show", type=int, default=5, help="different searches to print")
    options = parser.parse_args()
    corpus = Corpus(options.messages)
    different: list[SearchCase] = []
    with tempfile.TemporaryDirectory() as folder, SessionDB(Path(folder) / "state.db") as own:
        corpus.fill(own)
        cases = list_cases(corpus.texts)
        expected = [search_pages(own, case) for case in cases]
        print("| locale | kind | searches | with hits | hits | same hits | same answer |")
        print("|---|---|---|---|---|---|---|")
        for locale in LOCALES:
            server = postgres_server.start_server(locale)
            try:
                address = postgres_server.prepare_database(server.address)
                with PostgresDB(f"{address}&home=equal") as db:
                    copy_home(own, db)
                    different += _print_rows(locale, cases, expected, db)
            finally:
                server.stop()
    for case in islice(different, options.show):
        print(case, file=sys.stderr)
    return bool(different)


def _print_rows(
    locale: str, cases: Sequence[SearchCase], expected: Sequence[Any], db: PostgresDB
) -> list[SearchCase]:
    """Print the rows of a locale and return the searches with different answers."""
    different: list[SearchCase] = []
    for kind in dict.fromkeys(case.kind for case in cases):
        pairs = [
            (case, pages, search_pages(db, case))
            for case, pages in zip(cases, expected, strict=True)
            if case.kind == kind
        ]
        hits = [list_found(pages) for _, pages, _ in pairs]
        same_hits = sum(set(list_found(a)) == set(list_found(b)) for _, a, b in pairs)
        other = [case for case, ours, theirs in pairs if ours != theirs]
        print(
            f"| {locale} | {kind} | {len(pairs)} | {sum(map(bool, hits))} | {sum(map(len, hits))}"
            f" | {same_hits} | {len(pairs) - len(other)} |",
            flush=True,
        )
        different += other
    return different


if __name__ == "__main__":
    sys.exit(main())
