"""Plain questions: which of their words mean something, and what else a word may look like."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from session_core.state import searchable

_STOPPED = """
a about after again all also am an and any anyone are as at be because been before being but by can
could did do does doing done ever every for from get got had has have he her here him his how i if
in into is it its just like made make many may me might more most much must my no nor not now of off
often on once one only or other our out over own please say should so some such than that the their
them then there these they this those through to too under until up us very was we went were what
when where which while who whom whose why will with would yes you your we've i've it's what's who's
how's let's don't didn't doesn't isn't can't said tell told know find show last ago
"""
_ASKED = """
what what's which who who's whose whom why how when where did do does is are was were can could
should has have
"""
_ENDED = """
ization isation ations ation ments ment ings ing ions ion izes ized ize ised ise ies ied ers ed es
er ly s e y
"""
_FORMED = """
e s es ed d ing er ers y ies ied ion ions ation ations ize ized ization ment ly
"""
STOP = frozenset(_STOPPED.split())
_ASKING = frozenset(_ASKED.split())
_ENDINGS = _ENDED.split()
_FORMS = _FORMED.split()
_SPACELESS_STOP = frozenset(
    "的了是在我你他她它们吗呢吧么什怎哪谁和与就都也不这那有没很到说要去会着过给把被为"
    "のはがをにへとでもかな"
)
_VOWELS = "aeiou"
_SHORTEST_QUESTION = 4
_SHORTEST_STEM = 3
_SHORTEST_FORMED = 4


def is_question(text: str) -> bool:
    """Whether a text asks something: the one message that has all of its words may ask it too."""
    typed = text.lower().split()
    return len(typed) >= _SHORTEST_QUESTION and (text.endswith("?") or typed[0] in _ASKING)


def is_stop(piece: str) -> bool:
    """Whether a piece says nothing about what is asked."""
    if searchable.has_spaceless(piece):
        return any(char in _SPACELESS_STOP for char in piece)
    return piece in STOP or len(piece) == 1


def pieces(text: str, gram: int) -> Iterator[str]:
    """Yield the words of a text, an identifier whole and in its parts.

    What is written without spaces comes in overlapping pieces.
    """
    rest = text = unicodedata.normalize("NFKC", text)
    for run in searchable.runs(text):
        size = min(gram, len(run))
        yield from (run[at : at + size] for at in range(len(run) - size + 1))
        rest = rest.replace(run, " ")
    for part in rest.split():
        found = searchable.words(part)
        if len(found) > 1 and "'" not in part:
            yield part.lower()
        if len(found) == 1 and not part.isascii():
            yield part.lower()  # an index that does not fold has it as it was typed
        else:
            yield from found[:1] if "'" in part else found


def forms(piece: str) -> list[str]:
    """Return the word and what it may look like elsewhere: decided, decide, decides, deciding."""
    if not (piece.isascii() and piece.isalpha() and len(piece) >= _SHORTEST_FORMED):
        return [piece]
    stems = {piece}
    for ending in _ENDINGS:
        stem = piece.removesuffix(ending)
        if stem != piece and len(stem) >= _SHORTEST_STEM:
            stems.add(stem)
            if stem[-1] == stem[-2] and stem[-1] not in "aeiouls":
                stems.add(stem[:-1])
            break
    found = [piece]
    for stem in sorted(stems):
        found += [stem, *(stem + form for form in _FORMS)]
        if stem[-1] not in _VOWELS and stem[-2] in _VOWELS:
            found += [stem + stem[-1] + form for form in ("ed", "ing", "er")]
    return list(dict.fromkeys(found))
