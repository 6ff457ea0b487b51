"""Sentence ends in several languages: dates, abbreviations and quotations are not torn."""

from __future__ import annotations

import pytest

from session_core.compression.extractive import tokenize


@pytest.mark.parametrize(
    "sentences",
    [
        ["We met at 5 p.m. on Tuesday.", "Then we went home."],
        ["The U.S. team agreed.", "It costs approx. 5 EUR."],
        ["Mr. Smith and Mrs. Jones decide on Sept. 3.", "Done."],
        ["Kostenlos bis 24. Mai, 18 Uhr.", "Danach kostet es 5 Euro."],
        ["Das Treffen ist am 3. Oktober.", "Wir kommen z. B. mit dem Zug."],
        ["Am 1. und 2. Juni ist zu.", "Die 3. Version ist fertig."],
        ["Wir treffen uns am 12.05. um 10 Uhr.", "Bitte pünktlich."],
        ["Es war d. h. wohl im 19. Jahrhundert.", "Gut."],
        ["M. Dupont arrive le 5 janv. à 10 h.", "Il reste p. ex. deux jours."],
        ["C'est bon !", "On y va ?", "Oui."],
        ["El Sr. Gómez vive en la Avda. Central núm. 5.", "Cuesta aprox. 20 euros."],
        ["¿Vienes el 3 de mayo?", "¡Claro que sí!", "Nos vemos."],
        ["Встреча 5 мая 2026 г. в Москве.", "Стоит 300 руб. за час."],  # noqa: RUF001 -- Russian
        ["Это т. е. план на 2026 г.", "Потом посмотрим."],  # noqa: RUF001 -- Russian
        ["А. С. Пушкин написал это.", "Хорошо."],  # noqa: RUF001 -- Russian
    ],
)
def test_sentences_are_not_torn(sentences):
    text = " ".join(sentences)
    assert [text[begin:end] for begin, end in tokenize.find_sentence_spans(text)] == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["会議は5月24日18時です。", "場所は「第2会議室。」です。"],
        ["会议在5月24日下午6点。", "费用是3.5元。"],
        ["他说：“我们明天去。”", "好的！", "走吧？"],  # noqa: RUF001 -- Chinese
    ],
)
def test_unspaced_sentences_are_not_torn(sentences):
    text = "".join(sentences)
    assert [text[begin:end] for begin, end in tokenize.find_sentence_spans(text)] == sentences


@pytest.mark.parametrize(
    ("sentence", "bare"),
    [
        ("By the way, the lease ends in May.", "the lease ends in May"),
        ("And the pump: 40 W.", "the pump: 40 W"),
        ("So far so good.", "So far so good"),
        ("また、鍵は棚にあります。", "鍵は棚にあります"),
        ("Wait...", "Wait..."),
        ("And", "And"),
    ],
)
def test_ornament_is_stripped(sentence: str, bare: str) -> None:
    assert tokenize.strip_ornament(sentence) == bare
