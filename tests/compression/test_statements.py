"""Statements of a conversation: their kinds, their links, and statements that no longer hold."""

from __future__ import annotations

import re
from typing import Any

import pytest

from session_core.compression import summary_message
from session_core.compression.extractive import instructions, statements
from session_core.compression.extractive.statements import Statement
from session_core.compression.extractive.summarize import summarize

Message = dict[str, Any]


def user(text: str, number: int | None = None) -> Message:
    return {"role": "user", "content": text} | ({} if number is None else {"id": number})


def assistant(text: str, number: int | None = None) -> Message:
    return user(text, number) | {"role": "assistant"}


def read(*messages: Message) -> dict[str, Statement]:
    return {
        statement.text: statement for statement in statements.read_statements(messages).statements
    }


def make_summary(text: str, number: int | None = None) -> Message:
    (message,) = summary_message.build_messages(text, None, "assistant")
    return message | ({} if number is None else {"id": number})


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Our goal is a library for the whole district.", "goal"),
        ("Never store card numbers.", "rule"),
        ("Bitte nie an Freitagen ausliefern.", "rule"),
        ("Il ne faut pas dépasser le plafond.", "rule"),
        ("Wir haben beschlossen, SQLite zu nehmen.", "decision"),
        ("Hemos decidido usar Postgres.", "decision"),
        ("We still need to renew the certificate.", "task"),
        ("Нужно ещё заказать диски.", "task"),
        ("还需要补充说明书。", "task"),
        ("The lending form is finished.", "done"),
        ("Das Formular ist fertig.", "done"),
        ("フォームは完了しました。", "done"),
        ("Correction: the door opens at nine.", "changed"),
        ("Finalement, on garde le vieux serveur.", "changed"),
        ("Ines Albers is in charge of the shop.", "person"),
        ("The export to Ravenna fails.", "problem"),
    ],
)
def test_sentence_has_kind(text: str, kind: str) -> None:
    assert read(user(text))[text].kind == kind


@pytest.mark.parametrize("text", ["The form is not finished.", "Das ist noch nicht fertig."])
def test_negated_report_is_not_done(text: str) -> None:
    assert read(user(text))[text].kind != "done"


def test_filler_is_no_statement() -> None:
    rule = user("Never store card numbers.")
    assert list(read(assistant("Sure, going on with the next step."), rule, user("Thanks!"))) == [
        "Never store card numbers."
    ]


def test_filler_alone_is_stated() -> None:
    assert list(read(user("Thanks!"), user("Thanks!"))) == ["Thanks!"]


def test_report_closes_its_task() -> None:
    found = read(
        assistant("We still need to design the lending form."),
        assistant("We still need to order the shelves."),
        assistant("The lending form is finished and lives at /ausleihe."),
    )
    assert found["We still need to design the lending form."].state == "done"
    assert found["We still need to order the shelves."].state == "current"


def test_correction_replaces_statement() -> None:
    found = read(
        user("The door code of the cellar is 4711."),
        user("The attic has a window to the yard."),
        user("I was wrong, the door code of the cellar is 5822."),
    )
    assert found["The door code of the cellar is 4711."].state == "superseded"
    assert found["The attic has a window to the yard."].state == "current"


def test_other_value_replaces_statement() -> None:
    found = read(
        user("The upload limit of the relay is 250 MB."),
        user("The upload limit of the relay is 400 MB."),
    )
    assert [statement.state for statement in found.values()] == ["superseded", "current"]


def test_numbered_names_do_not_replace_each_other() -> None:
    found = read(user("Room 12 has a projector."), user("Room 14 has a projector."))
    assert {statement.state for statement in found.values()} == {"current"}


def test_error_keeps_its_cause_and_fix() -> None:
    summary = summarize(
        [
            user("certbot -d kiez.example"),
            user("It fails: DNS problem: NXDOMAIN looking up A for kiez.example"),
            assistant("The cause is a missing record."),
            user("Anna added it, works now."),
        ],
        2000,
    )
    assert (
        "It fails: DNS problem: NXDOMAIN looking up A for kiez.example\n"
        "  cause: The cause is a missing record.\n"
        "  fix: Anna added it, works now."
    ) in summary


def test_repeated_talk_explains_no_error() -> None:
    talk = [
        assistant(f"Opening docs/{name}.md again, because I forgot to scroll down.")
        for name in ("valves", "pumps", "gates", "tanks")
    ]
    summary = summarize([*talk, user("The first delivery is refused."), *talk], 2000)
    assert "The first delivery is refused." in summary
    assert "cause:" not in summary


@pytest.mark.parametrize(
    "text", ["61 of 65 agree, so I stop counting.", "The two lists agree with each other."]
)
def test_agreement_of_things_is_no_decision(text: str) -> None:
    assert read(assistant(text))[text].kind != "decision"
    assert read(user("We agree on port 8443."))["We agree on port 8443."].kind == "decision"


def test_answer_stays_with_its_question() -> None:
    summary = summarize([user("Backups?"), assistant("Nightly to the box of Lena.")], 2000)
    assert "Backups?\n  answer: Nightly to the box of Lena." in summary


def test_next_todo_list_replaces_the_last() -> None:
    found = read(
        assistant("- [ ] paint the door\n- [ ] oil the lock\n- [x] buy a brush"),
        assistant("- [ ] oil the lock\n- [x] buy some oil"),
    )
    assert found["[ ] paint the door"].state == "done"
    assert summarize([assistant("- [ ] oil the lock")], 500) == "Open:\n[ ] oil the lock"


def test_statements_age_by_message_ids() -> None:
    earlier = "2 statements so far\nRules:\nNever use FTP. (u10)\nAlways pay cash. (u95)"
    found = read(
        make_summary(earlier, 100), user("We decided to paint.", 101), user("I like red.", 199)
    )
    ages = [found[text].age for text in ("Never use FTP.", "Always pay cash.")]
    assert ages[0] > ages[1] > 1
    assert found["Never use FTP."].worth < found["Always pay cash."].worth


def test_ids_of_another_home_give_no_age() -> None:
    found = read(make_summary("1 statements so far\nRules:\nNever use FTP. (u90000)", 3), user("x"))
    assert found["Never use FTP."].age == 1


def test_new_statements_outlast_an_earlier_summary() -> None:
    old = [
        user(f"We decided that shelf {name} is for {name}ing.", at) for at, name in enumerate(OLD)
    ]
    first = summarize(old, 900)
    new = [
        user(f"We decided that box {name} goes to {name}burg.", 99 + at)
        for at, name in enumerate(NEW)
    ]
    alone = summarize(new, 900)
    second = summarize([make_summary(first, 98), *new], 900)
    kept = [name for name in NEW if f"{name}burg" in second]
    assert len(kept) >= 0.8 * sum(f"{name}burg" in alone for name in NEW)


OLD = ["paint", "cook", "read", "walk", "farm", "bank", "golf", "kayak", "mail", "park"]
NEW = ["Olden", "Magde", "Ham", "Salz", "Frei", "Duis", "Regens", "Augs", "Straß", "Luxem", "Cobur"]


def test_words_of_other_messages_lower_worth() -> None:
    said = "The lamp on the pier blinks twice."
    alone = read(user(said))[said].worth
    others = (assistant("The lamp is on the pier."), assistant("It blinks, twice a minute."))
    assert read(user(said), *others)[said].worth < alone / 2


def test_own_name_raises_worth() -> None:
    named, plain = "The lamp is the LX-204 on the pier.", "The lamp is the tall one on the pier."
    others = (user("The tall lamp?"), user("Yes, on the pier."))
    assert read(user(named), *others)[named].worth > 2 * read(user(plain), *others)[plain].worth


def test_summarized_small_talk_stays_weak() -> None:
    weak, strong = "I am in a meeting.", "Every pallet gets a red stripe for the insurance."
    summary = make_summary(f"9 statements so far\nThe user said:\n{weak}\n{strong}", 100)
    talk = (user("I am in the next meeting.", 101), assistant("After the meeting, then.", 102))
    found = read(summary, *talk)
    assert 2 * found[weak].worth < found[strong].worth


def test_alike_decisions_all_keep_worth() -> None:
    texts = [f"ticket ABC-{n}: we decided to use port {8000 + n}." for n in range(60)]
    few, many = (
        statements.read_statements(map(user, texts[:count])).current for count in (5, len(texts))
    )
    assert len(many) == len(texts)
    assert min(it.worth for it in many) > 0.8 * max(it.worth for it in few)
    assert all(statement.is_essential for statement in many)


def test_date_in_path_is_no_appointment() -> None:
    text = "Look at /var/log/orchard/valve-2026-08-13.log again."
    assert read(user(text))[text].kind == "file"
    text = "Look at the valves on 2026-08-13 again."
    assert read(user(text))[text].kind == "person"


@pytest.mark.parametrize(
    "text",
    [
        "add a red light to the valve.",
        "prune the list of valves to sixty.",
        "Put down: switch the orchard pump to night mode.",
        "And write the list of valves, for later.",
        "paint the gate of the orchard, shall I?",
        "purger les doublons de juillet.",
        "buscar una bomba con equipo propio.",
        "поставить две камеры у входа.",  # noqa: RUF001 -- Russian
        "Doppelte Einträge aus der Liste löschen, sobald alle da sind.",
        "果樹園のポンプの一覧を作る。",
    ],
)
def test_bare_instruction_is_task(text: str) -> None:
    assert read(assistant(text))[text].kind == "task"
    assert read(user(text))[text].kind == "request"


@pytest.mark.parametrize(
    "text",
    [
        "Test run is green on both valves.",
        "Die Kunden warten auf den Bus.",
        "As so often, the valves are old.",
        "Let me look at the valves first.",
        "Решать тут нечего, я только описываю.",
    ],
)
def test_statement_with_subject_is_no_instruction(text: str) -> None:
    assert not instructions.is_instruction(text)


def test_fix_is_no_open_task() -> None:
    text = "Group bind and mode 0640 in the template cured it."
    assert read(assistant(text))[text].kind not in ("task", "request")


def test_phrases_of_other_messages_lower_worth() -> None:
    own = "The pear trees stand on wet ground near the mill."
    shared = "The apple trees stand on dry ground near the lake."
    talk = [assistant(f"{shared} Row {n} was pruned by hand.", n) for n in range(2, 9)]
    found = statements.read_statements([user(own, 1), *talk])
    worth = {it.text: it for it in found.statements}
    assert worth[own].novelty == 1.0
    assert worth[shared].novelty < 0.5
    assert worth[shared].worth < worth[own].worth


def test_negated_value_is_correction() -> None:
    for text in ("The relay has port 8443, not 8080.", "首批数量是320台,不是200台。"):
        assert read(user(text))[text].kind == "changed"
    text = "Use no more than 20 GB a night."
    assert read(user(text))[text].kind == "rule"


def test_small_talk_does_not_answer_question() -> None:
    chatter = "The counter goes up and down as counters of this kind do."
    talk = [assistant(f"{chatter} Nothing of note.", n) for n in range(4, 12)]
    messages = [user("Complaints?", 1), assistant(f"{chatter} Nothing of note.", 2), *talk]
    found = statements.read_statements(messages)
    assert not any(statement.parts for statement in found.statements)


def test_task_before_the_last_list_stands_apart() -> None:
    messages = [
        user("We need to renew the fire certificate."),
        assistant("- [x] count the crates\n- [ ] paint the gate"),
        user("We need to order new labels."),
    ]
    summary = summarize(messages, 2000)
    sections = dict(part.split(":\n", 1) for part in _split_sections(summary))
    assert "fire certificate" in sections["Not on the last list"]
    assert "paint the gate" in sections["Open"]
    assert "order new labels" in sections["Open"]


def test_unlisted_task_stays_apart() -> None:
    earlier = "1 statements so far\nNot on the last list:\nWe need to renew the fire certificate."
    summary = summarize(
        [
            make_summary(earlier),
            user("The gate has two new hinges from Ilse."),
        ],
        2000,
    )
    assert "Not on the last list:\nWe need to renew the fire certificate." in summary


def _split_sections(summary: str) -> list[str]:
    """Return the sections of a summary, each with its heading."""
    return re.split(r"\n(?=[A-Z][\w ]*:\n)", summary)[1:]
