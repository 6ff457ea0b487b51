"""Bare instructions, such as `scrub the tokens`, `purger les doublons`, `поставить камеры`.

Such a sentence has no subject. It begins with an imperative or an infinitive; in German and
Japanese it ends with one. Speakers write tasks in this form, often without a word such as `to do`.
"""

from __future__ import annotations

import re

from session_core.compression.extractive import cues, tokenize

_MAX_CHARS = 120
_MIN_WORDS = 3
_LEAD = re.compile(r"^[^:.]{2,40}:\s+")
_WORD = re.compile(r"[\w'-]+")

_ENGLISH = """
adapt add adjust agree allow analyse analyze announce apply archive arrange ask assign attach
audit automate back backport benchmark block book build bump buy calculate calibrate call cancel
change check choose clarify clean clear close collect compare compile compress configure confirm
connect contact convert copy correct count cover create cut debug decide define delete deliver
deploy describe design detect determine disable discuss document double download draft draw drop
edit email enable encrypt engrave ensure enter evaluate examine exchange explain export extend
extract fetch file fill filter find finish fix follow forward generate get give grant group hand
handle hide hire implement import improve include increase index inform insert inspect install
integrate introduce investigate invite isolate keep label launch let limit link list load localise
log lower make mark measure meet merge migrate mirror mock modify monitor mount move name notify
obtain offer open optimise optimize order organise organize pack paint parse patch pay pick pin
place plan plant plot port post prepare print profile prove provide prune publish pull purge push
put raise rebuild record recruit redo reduce refactor refit refresh register release remove
rename render renew repair repeat replace reply report reproduce request rerun reserve reset restore
retire return review revise revoke rewrite roll rotate run save scan schedule scrub search secure
send separate serve set sew share ship shorten shut sign simplify simulate sketch solve sort speed
split start stop store submit subscribe survey swap switch sync talk tell test throttle tidy track
train transfer translate trim try tune turn type unify update upgrade upload use validate verify
visit warn wash watch wipe wire wrap write
"""
_ENGLISH_VERBS = frozenset(_ENGLISH.split())
_PREDICATE_LIST = """
is are was were has have had will would can could does did of and or that which me us
"""
_ENGLISH_PREDICATES = frozenset(_PREDICATE_LIST.split())
"""Words after which the first word is not an imperative, as in `test is green`"""

_UNCHANGED_VERBS = frozenset(("set", "put", "cut", "shut", "split", "let"))
_VERBS_BE = frozenset(("is", "are", "was", "were", "has", "had"))

_FRENCH_NOUNS = """
hier cher premier dernier fier hiver mer désir loisir avenir plaisir dossier papier calendrier
courrier fichier atelier chantier quartier métier panier escalier janvier février entier
"""
_FRENCH_EXCEPTIONS = frozenset(_FRENCH_NOUNS.split())
_FRENCH = re.compile(
    r"(\w{2,}(?:er|ir)|écrire|mettre|prendre|faire|rendre|lire|remettre|répondre|inscrire"
    r"|construire"
    r"|traduire|vendre|suivre|reprendre|réduire|décrire)\s"
    r"(?:l'|d'|(?:les?|la|une?|des?|du|aux?|à|ces?|cette|son|sa|ses|mon|ma|mes|leurs?|notre"
    r"|votre|tous|toutes)\s)"
)
_SPANISH_NOUNS = """
ayer mujer lugar taller alquiler azúcar hogar militar familiar popular similar particular regular
"""
_SPANISH_EXCEPTIONS = frozenset(_SPANISH_NOUNS.split())
_SPANISH = re.compile(r"(\w{2,}[aei]r)\s.*\b(?:el|los|las|una?|con|por|para|del?|al|sus?|y)\b")
_RUSSIAN = re.compile(
    r"(?![а-яё]*(?:[оеа]сть|вять|сять|дцать)\b)(?!.*\b(?:нечего|незачем|не о чем|можно|нельзя)\b)"  # noqa: RUF001 -- Russian
    r"(?!(?:пять|опять|мать|ночь|речь|дочь|хоть|пусть|путь)\b)"
    r"(?:[а-яё]{2,}(?:ть|ться|чь)|(?:при|пере|на|по)йти|[а-яё]*(?:вез|нес|вес)ти)\s"  # noqa: RUF001 -- Russian
)
_GERMAN_END = re.compile(r"[a-zäöüß]{2,}(?:en|eln|ern)$")
_GERMAN_LIST = """
abholen abschließen abstimmen anfragen anlegen anpassen anrufen aufräumen ausmessen austauschen
beantragen beantworten bestellen bezahlen buchen drucken einbauen einladen einrichten einstellen
entfernen ergänzen erneuern ersetzen erstellen festlegen kaufen klären korrigieren kündigen
löschen messen nachbestellen nachmachen packen planen prüfen reparieren reservieren schicken
schreiben sichern sortieren streichen tauschen testen umbenennen umstellen umziehen vergleichen
verkaufen verlängern verschicken versenden vorbereiten wechseln überarbeiten übersetzen überweisen
"""
_GERMAN_OBJECT = re.compile(rf"[A-ZÄÖÜ][\wäöüß-]+ (?:{'|'.join(_GERMAN_LIST.split())})(?:[,.!]|$)")
"""An object and an infinitive, as in `Leitern prüfen`"""
_FINITE_LIST = """
ich du er sie es wir ihr man ist sind war waren hat haben hatte hatten wird werden wurde wurden kann
können muss müssen soll sollen darf dürfen will wollen der die das den dass wenn weil ein eine einen
"""
_GERMAN_FINITE = frozenset(_FINITE_LIST.split())
"""Words that show a subject or a finite verb, or that may begin a subject."""
_PREPOSITION_LIST = """
aus mit als auf für zur zum bis von vom vor nach bei beim an am im ins um über unter
"""
_GERMAN_PREPOSITIONS = frozenset(_PREPOSITION_LIST.split())
_JAPANESE = re.compile(r"^[^、。]{2,30}を[^、。]{1,10}(?<!ま)[るくすつむぐぶう][。.]?$")
_CODE = re.compile(r"\w[/_=.]\w|--")
_HIRAGANA = re.compile("[\u3041-\u309f]")


def is_instruction(text: str) -> bool:
    """Return whether a sentence is a bare instruction, alone or after a short lead and a colon."""
    plain = tokenize.strip_ornament(text.replace("\u2019", "'").strip())
    offer = cues.OFFER_END.search(plain.lower())
    plain = plain[: offer.start()] if offer else plain
    if len(plain) > _MAX_CHARS or plain[-1:] in "?\uff1f":
        return False
    lead = _LEAD.match(plain)
    return _is_bare(plain) or (lead is not None and _is_bare(plain[lead.end() :]))


def has_ambiguous_first_verb(text: str) -> bool:
    """Return whether a text begins in lower case with a verb whose past has the same form.

    Of `set up the mirror`, an item of a list, only the case shows that nothing is reported.
    """
    return text.partition(" ")[0] in _UNCHANGED_VERBS


def _is_bare(plain: str) -> bool:
    folded = plain.lower()
    if _GERMAN_OBJECT.match(plain):
        return True
    if _JAPANESE.match(folded):
        return _HIRAGANA.search(folded) is not None
    words = _WORD.findall(folded)
    if len(words) < _MIN_WORDS or not folded.startswith(words[0]):
        return False
    if not folded.startswith(f"{words[0]} {words[1]}"):
        return False
    if words[0] in _ENGLISH_VERBS:
        return words[1] not in _ENGLISH_PREDICATES and _VERBS_BE.isdisjoint(words[1:4])
    french, spanish = _FRENCH.match(folded), _SPANISH.match(folded)
    return bool(
        (french and french.group(1) not in _FRENCH_EXCEPTIONS)
        or (spanish and spanish.group(1) not in _SPANISH_EXCEPTIONS)
        or _RUSSIAN.match(folded)
        or _is_german(plain)
    )


def _is_german(plain: str) -> bool:
    """Return whether the first part of a sentence ends with an infinitive and has no subject."""
    words = _WORD.findall(plain.partition(",")[0])
    if not words or not words[-1].islower() or _CODE.search(plain):
        # A noun at the end, as in `für alle Sperren`
        return False
    words = [word.lower() for word in words]
    return (
        len(words) >= _MIN_WORDS
        and _GERMAN_END.match(words[-1]) is not None
        and words[0] not in _GERMAN_FINITE
        and not _GERMAN_PREPOSITIONS.isdisjoint(words)
        and not any(word in _GERMAN_FINITE for word in words if word not in ("der", "die", "den"))
    )
