"""Rules and decisions by the form of a sentence, and sentences that only mention them.

A standing rule often has no modal verb: `no tracking pixels`, `nur Anton darf an die Heizung`,
`write dates with the month spelled out`. A decision often has no word such as `decided`: `let's
skip the market`, `es bleibt bei zwei Schichten`.
"""

from __future__ import annotations

import re

_NEGATED_NOUN = re.compile(
    r"^(?:and |also |please |und |auch |bitte |et |y |и )?"
    r"(?:no(?! (?:problems?|idea|worries|hurry|rush|doubt|wonder|surprise|changes?|difference|need"
    r"|answer|news|luck|time|one|more|longer|matter|way|thanks|reply|errors?|trace|sign)\b)"
    r"|keine?n?(?! (?:ahnung|problem|sorge|eile|frage|zeit|lust|antwort|wunder|änderung|ursache"
    r"|fehler|spur)\b)"
    r"|pas (?:de|d')|aucune?|nada de|ning[uú]na?|никаких|никакой|никакого)(?=[ '])(?: ?[^\s,.!]+)"
)
_QUANTITY = r"(?:[€$£]\s?)?\d|(?:two|three|four|five|zwei|drei|vier|fünf)\b"
_MODAL = (
    r"(?:may|can|should|is allowed|are allowed|gets?|darf|dürfen|kann|können|soll|sollen|peut"
    r"|peuvent"
    r"|puede|pueden|может|могут)"
)
_NOBODY = (
    r"(?:nothing|nobody|no one|none|never|nichts|niemand|nie|rien|personne|nadie|nada|никто|ничего"
    r"|ничто|keine?[nr]?|no)"
)
_BOUND = (
    r"(?:without|unless|until|but|except|before|after|older|newer|ohne|außer|bevor|sans|sauf"
    r"|avant|sin|salvo|antes|без|кроме|до)"
)
_STANDING = re.compile(
    rf"^(?:only|nur|solo|sólo|seul(?:e|s|es)?|только)\b.{{1,40}}\b{_MODAL}\b"
    rf"|\b(?:only|nur|sólo|seulement|только)\b.{{0,30}}\b(?:before|after|between|with|without|mit"
    r"|ohne|vor|nach|zwischen|avec|avant|après|con|antes|después|до|после|с)\b"  # noqa: RUF001 -- Russian
    rf"|^(?:and |und )?{_NOBODY}\b.{{2,60}}\b{_BOUND}\b"
    r"|\b(?:ohne|without|sans|sin|без)\b.{2,40}\b(?:nichts|niemand|keine?[nr]?|nothing|nobody"
    r"|no one"
    r"|never|rien|personne|nada|nadie|ничего|никто)\b"
    rf"|\b(?:more than|mehr als|plus de|más de|больше)\b.{{2,40}}\b{_NOBODY}\b"
    r"|^(?:nach|vor|ab|zwischen|an|after|before|between|on|during|après|avant|después de|antes de"
    rf"|после|до)\s.{{2,30}}\s(?:keine?n?|no|pas de|nada de|никаких)\s"
    rf"|\b(?:above|over|below|under|beyond|über|unter|ab|au-dessus de|más de|свыше|от)\s"
    rf"(?:{_QUANTITY}).{{0,40}}"
    r"\b(?:needs?|requires?|only|must|nur|muss|müssen|brauch\w+|nécessit\w+|requier\w+|нужн\w+)\b"
    r"|\b(?:every|each|jede[rs]?|chaque|cada|каждый|каждая|каждое)\s.{1,40}"
    r"\b(?:needs?|gets?|requires?|braucht|benötigt|bekommt|a besoin|necesita|нужн\w+)\b"
    r"|\b(?:stays?|keep|kept|bleib\w*|rest(?:e|ent)|queda\w*)\s(?:\w+\s){0,3}(?:out of|inside|off"
    r"|away from|under|below|draußen|hors|fuera)\b"
    r"|\bbleib(?:t|en)\b.{0,30}\b(?:zu|aus|geschlossen|draußen|gesperrt)[.!]?$"
    r"|\b(?:do not|don't|doesn't|does not|never) (?:leave|belong|run|go|get|enter|share|mix)\b"
    r"|\b(?:verlassen|gehör(?:t|en)|kommt|kommen)\b.{0,30}\bnicht\b"
    r"|^(?:please |and )?(?:don't|do not)\s(?!forget|worry|bother|hesitate|ask me|think|know|see"
    r"|get"
    r"|understand|remember|mind|have|need|be\b|like|want|believe|care)\w+"
    r"|^(?:please )?keep (?!going|on\b|me\b|you\b)"
    r"|\b(?:i'd rather|i would rather|ich mag|ich hätte (?:es )?gern|am liebsten|j'aime"
    r"|je n'aime pas"
    r"|no me gusta|me gusta|(?:я|мы) (?:не )?люб\w+|full stop|punktum|ausnahmslos)\b"
    r"|(?:は|を|には).{0,20}(?:しない|使わない|出さない|禁止)[。.]?$|(?:不|别|勿)(?:用|放|给|发"
    r"|写|碰).{1,30}[。.]?$"
)
_STYLE = re.compile(
    r"^(?:please |and |bitte |und )?(?:use|write|give|spell|show|quote|format|name|answer|reply"
    r"|call"
    r"|express|round|print|label|list|nimm|nehmt|verwende|schreib\w?|antworte|nenne?|gib|runde"
    r"|écris|utilise|réponds|escribe|usa|responde|пиши|используй|отвечай)\b(?P<rest>.{3,80})$"
)
_GENERIC = re.compile(
    r"\b(?:all|every|everything|everywhere|each|any|always|alle[nms]?|alles|jede[nmrs]?|überall"
    r"|immer"
    r"|tou(?:t|te|s|tes)|partout|tod[oa]s?|siempre|вс[её]|всех|везде|всегда)\b"
    r"|\b(?:in|auf|en|на|по)(?:-|\s)(?:plain|short|simple|clear|full|lower|upper|english|german"
    r"|french|utc"
    r"|euros?|cents?|grams?|kilometres|kilometers|percent|deutsch|englisch|ganzen|kurzen|einfachen"
    r"|phrases|palabras|русски)"
    r"|^ (?!this|his|us\b|is\b|as\b|yes)(?:[a-z]{2,14} )?[a-z]{3,14}(?<!s)s\b(?! (?:a|an|the|my"
    r"|our)\b)"
)
"""A generic object, which makes an instruction about form a standing one."""
_DECIDES = re.compile(
    r"\bwe(?:'ll| will|'re| are)? (?:now |then |simply |just )?(?:take|keep|keeping|stay|staying"
    r"|drop"
    r"|dropping|skip|skipping|go with|going with|stick|stop|use|using|switch|switching|move to"
    r"|moving to|give up|leave out|do without)\b"
    r"|\b(?:we|i) (?:picked|chose|opted|settled|went with|dropped)\b"
    r"|\bwe (?:do not|don't|won't|are not going to|aren't going to|'re not going to) \w+"
    r"|\bwe're not going to \w+"
    r"|^(?:ok(?:ay)?,? |fine,? |so |then )?let's (?!see|look|wait|hope|say|talk|check|go\b|start"
    r"|try)\w+"
    r"|^(?:fine|ok(?:ay)?|alright|agreed|good|gut|also gut|einverstanden|abgemacht|d'accord"
    r"|de acuerdo"
    r"|vale|хорошо|ладно|договорились)[,:] .{3,60}(?: then| it is| dann)[.!]?$"
    r"|^(?:agreed|vereinbart|abgemacht|convenu|acordado|согласовано|решено|決定|约定)\s?[:,]"
    r"|\b(?:the|our) [\w -]{2,30} will (?:be (?:written|built|made|closed|dropped|hosted|kept"
    r"|replaced)"
    r"|close|stay|remain|use|run on|move)\b"
    r"|\b(?:wir|ich) (?:bleiben?|nehmen?|behalten?|verzichten?|streichen?|lassen?|machen? es"
    r"|verwenden?"
    r"|nutzen?|setzen? auf|steigen? um|kaufen?|stellen?\b.{2,40}\bum\b|geben?\b.{2,40}\bauf\b"
    r"|sparen? uns)\b"
    r"|\b(?:bleiben|nehmen|behalten|lassen|machen|streichen|sparen|stellen|geben) wir(?: es"
    r"| uns)?\b"
    r"|\bes bleibt (?:bei|beim|dabei)\b|\b(?:fällt|fallen) (?:\w+ ){0,3}(?:aus|weg)[.!]?$"
    r"|\b(?:on|nous) (?:garde|gardons|prend|prenons|reste|restons|abandonne|abandonnons"
    r"|laisse tomber"
    r"|passe à|passons à|renonce|renonçons)\b"
    r"|\b(?:nos quedamos|cogemos|nos pasamos|renunciamos|dejamos de|quitamos|mantenemos)\b"
    r"|\b(?:берём|берем|оставляем|остаёмся|остаемся|отказываемся|переходим|убираем)\b"
    r"|(?:で行きます|でいきます|を採用|をやめ|は見送|のままに?します)|(?:就用|保留|放弃|不做了"
    r"|取消)"
)
_UNSETTLED = re.compile(
    r"\b(?:who|why|whether|someone|somebody|nothing|no one|if|could|can we|would|not sure|need a"
    r"|wer|warum|ob|jemand|nirgends|nichts|wenn|könnte|qui a|pourquoi|si|quién|por qué|кто|почему"
    r"|если|ли)\b.{0,60}(?:deci[ds]|agree|chose|settle|entsch|beschl|einig|vereinb|zugestimmt"
    r"|décid|acord"
    r"|реш|догов)"
    r"|(?:decid\w*|entschieden|beschlossen) (?:nothing|nichts)\b|\bthey had\b"
)
_HEDGE = re.compile(
    r"\b(?:reads? like|rule of thumb|for example|an example|it would be"
    r"|i (?:could|always|never|prefer"
    r"|suppose"
    r"|guess)|they (?:never|always)|years? ago|long ago|supposedly|apparently|someone|somebody"
    r"|than (?:it|they) ha(?:s|ve) to|faustregel|angeblich|wohl|jemand|irgendwo|irgendwann"
    r"|vor jahren"
    r"|ich (?:lese|schaue|mache)|zum beispiel|müsse|dürfe|solle|par exemple|quelqu'un|il paraît"
    r"|por ejemplo|alguien|al parecer|кто-то|говорят|например)\b"
    r"|\b(?:manual|comment|page|docs?|documentation|guide|forum|article|readme|anleitung|handbuch"
    r"|kommentar|seite|artikel|manuel|commentaire|article|página|comentario|комментари\w+"
    r"|страниц\w+)\b"
    r".{0,40}\b(?:says?|said|claims?|recommends?|warns?|praises?|steht|sagt|behauptet|empfiehlt"
    r"|lobt"
    r"|dit|recommande|dice|recomienda|говорит|пишут)\b"
    r"|\b(?:steht|says|dit|dice)\b.{0,30}\b(?:anleitung|handbuch|kommentar|manual|comment|manuel)\b"
    r"|(?:anleitung|handbuch|manual|commentaire|comentario)\b.{0,20}\b(?:steht|says|dit|dice)\b"
    r"|, (?:das|die|der|den) (?:es |ihn |sie )?(?:\w+ )?nicht mehr\b|\b(?:that|which) (?:is"
    r"|are) no longer\b"
    r"|\bqui (?:n'est|ne sont|n'existent?) plus\b|\bque ya no\b|\bкотор\w+ (?:уже|больше) не"  # noqa: RUF001 -- Russian
    r"|らしい|だそうです|例えば|据说|例如"
)
_HABIT = re.compile(
    r"\b(?:never|always|nie|niemals|immer|jamais|toujours|nunca|siempre|никогда|всегда)\b"
)
_PAST = re.compile(
    r"\b(?:was|were|had|has been|have been|has (?:always|never)|have (?:always|never)|hat|haben|war"
    r"|waren|wurde|a été|était|avait|ha sido|fue|era|había|был[аио]?)\b"
)


def is_standing_rule(folded: str) -> bool:
    """Return whether the form of a sentence of the user shows a standing rule."""
    if _NEGATED_NOUN.match(folded) or _STANDING.search(folded):
        return True
    style = _STYLE.match(folded)
    return style is not None and _GENERIC.search(style["rest"]) is not None


def strip_habit(folded: str, *, always: bool) -> str:
    """Return a text without `always` and `never` if it reports the past, or in each case."""
    return _HABIT.sub(" ", folded) if always or _PAST.search(folded) else folded


def is_decision(folded: str) -> bool:
    """Return whether the form of a sentence shows a decision."""
    return _DECIDES.search(folded) is not None and not is_unsettled(folded)


def is_unsettled(folded: str) -> bool:
    """Return whether a sentence only mentions that something is or could be decided."""
    return _UNSETTLED.search(folded) is not None


def is_hedged(folded: str) -> bool:
    """Return whether a sentence reports what others say, or an example."""
    return _HEDGE.search(folded) is not None
