"""Phrases that show the kind of a sentence, such as a goal, a rule or a correction.

Phrases are in lower case, separated by `|` or a line break. In languages that are written with
spaces they match whole words; the phrases after `unspaced` match anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

_WORD = re.compile(r"\w+")


class Cue(NamedTuple):
    """Phrases with one meaning. `firsts` are their first words, for a quick check."""

    firsts: frozenset[str]
    spaced: re.Pattern[str]
    unspaced: re.Pattern[str]

    def is_in(self, folded: str, words: Collection[str]) -> bool:
        """Return whether a text in lower case, with these words, contains one of the phrases."""
        if not self.firsts.isdisjoint(words) and self.spaced.search(folded):
            return True
        return not folded.isascii() and self.unspaced.search(folded) is not None


def _compile_cue(phrases: str, unspaced: str) -> Cue:
    listed, wide = _split_phrases(phrases), _split_phrases(unspaced)
    firsts = frozenset(_WORD.findall(phrase)[0] for phrase in listed)
    return Cue(
        firsts,
        re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, listed))})(?!\w)"),
        re.compile("|".join(map(re.escape, wide))),
    )


def _split_phrases(phrases: str) -> list[str]:
    parts = [part.strip() for line in phrases.splitlines() for part in line.split("|")]
    return sorted(filter(None, parts), key=len, reverse=True)


_MONTHS = (
    "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    "|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?|januar|februar|märz|mai|juni|juli|oktober|dezember"
    "|janvier|février|mars|avril|juin|juillet|août|septembre|octobre|novembre|décembre"
    "|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre"
    "|января|февраля|марта|апреля|мая|июня|июля|августа|сентября|октября|ноября|декабря"
)
_WEEKDAYS = (
    "(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
    "|(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag)s?"
    "|(?:lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche)s?"
    "|lunes|martes|miércoles|jueves|viernes|sábado|domingo"
    "|понедельника?|вторника?|среды|четверга|пятницы|субботы|воскресенья"
)

FILLER = _compile_cue(
    """
sure|ok|okay|thanks|thank you|great|perfect|sounds good|looks good|got it|alright|all right|cool
nice|good morning|good evening|hello|hi|hey|let me|i'll look|i'll check|i'll have a look|i will look
i am looking|i'm looking|i'm checking|going on|go on|go ahead|one moment|on it|will do
you're welcome
no problem|of course|happy to|let me know|anything else|hope that helps|i'll start|i'll go|i'll now
i will now|now i'll|next i'll|i see|understood|makes sense|as expected|here is|here's|here are
sounds fine|sounds right|keep going|no idea|not sure|take your time|i read through
noted|fine by me|glad|welcome back|good point|interesting|hm|hmm|moving on|continuing|carry on
klar|danke|super|alles klar|gern|gerne|in ordnung|verstanden|ich schaue|ich sehe|ich prüfe
schauen wir|guten morgen|hallo|moment|weiter geht's|mach weiter|passt|ich mache|hier ist
merci|d'accord|parfait|bien sûr|je regarde|je vérifie|bonjour|très bien|voici|entendu|compris
gracias|vale|perfecto|claro|voy a mirar|voy a revisar|hola|buenos días|muy bien|entendido|de acuerdo
спасибо|хорошо|понятно|ладно|отлично|сейчас посмотрю|посмотрю|привет|конечно|ясно|добрый день
""",
    """
好的|谢谢|没问题|收到|明白|我来看|我看看|让我|了解|可以的|当然|你好|ありがとう|了解|承知
わかりました
かしこまりました|確認します|見てみます|おはよう|こんにちは|はい
""",
)
"""The beginning of small talk."""

GOAL = _compile_cue(
    """
goal|the goals|objective|the aim|we want to|i want to build|i want to make|i'd like to build
i would like to build|the project is|we are building|we're building|i'm building|i am building
the purpose|our mission|the idea is|the point of this
das ziel|ziel ist|unser ziel|wir wollen|ich möchte ein|wir bauen|ich baue|es geht um
objectif|l'objectif|le but|nous voulons|on veut|on construit|je voudrais créer
objetivo|el objetivo|la meta|queremos|estamos construyendo|quiero crear|quiero montar
цель|наша цель|мы хотим|мы делаем|мы строим|хочу сделать|задача проекта
""",
    "目标是|目标|我们要做|我们想|想做一个|目的是|目的は|目標は|目標|を作りたい|作りたいと",
)

RULE = _compile_cue(
    """
must|must not|mustn't|never|always|at most|no more than|at least|not more than|not allowed
forbidden|requirement|required|constraint|prefer|prefers|preference|we don't|don't ever|only if
without my|without asking|no exceptions|mandatory|may not|shall|is off limits|under no circumstances
has to stay|have to stay|needs to stay|has to be|have to be|cannot exceed|budget is|the limit is
capped at|hard cap|the cap is|not longer|no later than|not later than
please no|please don't|please never|i don't want|i do not want|we do not want|i like|i hate
i want it|keep it|stick to|allergic|by law|policy|the rule|no longer than
muss|müssen|darf nicht|dürfen nicht|darf kein|darf keine|darf nur|dürfen nur|nie|niemals|immer
höchstens
mindestens|lieber|bevorzuge|bevorzugt|vorgabe|verboten|pflicht|auf keinen fall|bitte keine
bitte kein
bitte nie|bitte nicht|ausschließlich|nicht mehr als|soll nicht|sollen nicht|ich will kein
keinesfalls
doit|doivent|ne doit|jamais|toujours|au plus|au maximum|au moins|préfère|préférons|interdit
obligatoire|uniquement|pas plus de|il ne faut pas|surtout pas|contrainte
debe|deben|nunca|siempre|como máximo|al menos|como mínimo|prefiero|preferimos|prohibido|obligatorio
no más de|no puede|no pueden|sin excepción|únicamente|hay que evitar|restricción
должен|должна|должно|должны|никогда|всегда|нельзя|обязательно|не больше|не более|не менее
предпочитаю|предпочитаем|запрещено|ни в коем случае|только через|требование|лучше без
""",
    """
必须|不能|不可以|不得|一律|最多|至少|只能|禁止|偏好|喜欢|不要|不许|严禁|要求|不超过
必ず|決して|てはいけ|てはならない|ないでください|しないで|禁止|最大|以内|好みます|嫌い|厳守|のみ
""",
)

OPEN = _compile_cue(
    """
wish|feature request|todo:|a todo|the todo|todo list|to-do|to do|fixme|still need|still needs
still have to|still has to|still open|still missing
still to|still pending|not yet|pending|outstanding|remaining|waiting for|waiting on|remind me
don't forget|do not forget|remember to|left to do|on my list|on our list|open question|open point
open task|action item|needs to be|need to be|has yet to|have yet to|remains to|backlog|unresolved
undecided|by tomorrow|before launch|before the release|before we|needs a|needs an|someone should
we should|we need to|we still|you still|i still|it still needs|later we|follow up|follow-up|due by
due on|is missing|are missing|to be decided|to be done|assigned to|will do it later|next week
we have to|will have to|left for later|blocked on|blocked by|parked|new task|task for|can you add to
put on the list|add to the list|is open|are open|owes us|owe|needs doing|please remember
then i need|i also need|i still need|left to
wunsch|noch offen|offen ist|offen sind|ist offen|sind offen|offen|noch nicht|noch zu|muss noch
müssen noch
fehlt noch|fehlen noch|steht noch aus|stehen noch aus|ausstehend|nicht vergessen|wartet auf
warten auf|aufgabe|aufgaben|wir müssten|wir sollten|zu tun|zu erledigen|später noch|denk dran
denk daran|denkt dran|denkt daran|daran denken
an die erinnern|ich brauche|wir brauchen noch
souhait|à faire|reste à|il reste|restent à|pas encore|ne pas oublier|n'oublie pas|en attente
il faudra
il faudrait|il manque|tâche|penser à|on doit encore|il faut encore
pendiente|pendientes|por hacer|falta|faltan|todavía no|aún no|queda por|quedan por|no olvidar
no olvides|tarea|tareas|tenemos que|hay que|está abierto|habrá que|recordar
нужно|надо|осталось|остаётся|остается|ещё не|еще не|не забыть|не забудь|задача|ждём|ждем
предстоит|открытый вопрос|пока не|следует|надо будет
""",
    """
待办|待辦|还没|还需要|還需要|尚未|未完成|别忘|不要忘|记得|待确认|等待|还要|要做的|需要做|有待|缺少
还差
やること|未対応|未完了|残って|まだ|忘れず|忘れないで|する必要|しなければ|宿題|保留|要確認|待ち
残タスク|を加えます|に追加します|を追加します
""",
)
"""Words of a task that stays open until it is reported as done."""

NOTED = _compile_cue(
    """
noted, |noted: |added: |put down: |i add |i note |i write down |on the list: |on my list: |next i
next: |next step: |next up:
ich ergänze |ich notiere |notiert: |notiert, |vermerkt: |als nächstes |nächster schritt:
j'ajoute |je note |noté : |ensuite, je |prochaine étape :
añado |anoto |apunto |anotado: |apuntado: |después voy |siguiente paso:
добавляю |записываю|записал: |записала: |добавил: |добавила: |далее: |следующий шаг:
""",
    "记下|已记录|下一步|次に|次は|メモ",
)
"""Words with which the assistant records a task or names its next step."""

INTENTION = _compile_cue(
    """
let me|i'll|i will|i am going to|i'm going to|now i|next i|i need to look|i need to check
i need to see|first i|let's look|let's see|let's check
ich werde|ich schaue|ich prüfe|ich sehe|zuerst|je vais|voy a|сейчас|我来|让我|我先
""",
    "我来|让我|我先|してみます|確認します",
)
"""Words that announce the next step of the assistant."""

DONE = _compile_cue(
    """
done|finished|completed|complete|shipped|deployed|merged|released|sent|fixed|solved|resolved
is live|are live|went live|works now|working now|installed|renewed|ordered|paid|booked
signed|published|launched|closed|implemented|is ready|are ready|set up|passed|migrated|delivered
uploaded|submitted|wired up|is online|are online|is up again|written|in place|is set|taken care of
handled|replaced|removed
added|created|built|tested|confirmed|arrived|received|rolled out|configured|tick off|ticked off
check off|crossed off|off the list|off my list|cleaned up|rotated|restored|approved|agreed to
fertig|erledigt|abgeschlossen|ist live|ist online|sind online|ist durch|sind durch|sind raus
läuft jetzt|läuft wieder|bestellt|gebucht|eingerichtet
verschickt|behoben|gelöst|bezahlt|unterschrieben|umgesetzt|veröffentlicht|steht jetzt|gemacht
abgehakt|geschickt|eingebaut|angelegt|geliefert|geklärt|gesendet|gedruckt|hochgeladen|genehmigt
terminé|terminée|fini|finie|livré|livrée|déployé|déployée|envoyé|envoyée|réglé|réglée|corrigé
corrigée|résolu|résolue|en ligne|installé|installée|commandé|commandée|signé|signée|payé|payée
c'est fait|publié|publiée|prêt|prête|mis en place|mise en place|reçu
terminado|terminada|hecho|hecha|listo|lista|acabado|acabada|completado|completada|desplegado
enviado|enviada|resuelto|resuelta|arreglado|arreglada|publicado|publicada|pagado|pagada|firmado
firmada|ya está|ya están|instalado|configurado|entregado|recibido
готово|готова|готов|готовы|сделано|сделал|сделала|закончил|закончили|завершено|завершён|выполнено
отправлено|отправил|отправили|исправлено|исправил|исправили|решено|опубликовано|опубликован
оплачено|оплатили|установлено|закрыто|закрыт|запущено|запустили|подписан|подписали|получили
""",
    """
已完成|完成了|做好|搞定|已经|已修复|修好|解决了|上线了|已上线|部署好|已部署|发送了|已发|结束了
已关闭|写好|装好|弄好
完了|終わりました|終わった|済み|済んだ|できました|出来ました|直しました|公開しました|解決しました
届きました|提出しました|作成しました
""",
)

OPEN_FORM = re.compile(
    r"\b(?:muss|müssen|müsste|müssten|soll|sollen|sollte|sollten)\b.{1,60}\bnoch\b(?! nie)"
    r"|\bbitte noch\b(?! ?(?:mal|einmal)\b)"
    r"|\b(?:someone|somebody|jemand|quelqu'un|alguien|кто-то)\s(?:\w+\s){0,2}"
    r"(?:should|must|needs to|has to|müsste|muss|sollte|devrait|doit|debería|tiene que|должен)\b"
)
"""A task whose words stand apart."""

_CHANGED = (
    r"(?:moved|pushed|wrote|sent|changed|updated|switched|raised|lowered|renamed|cleared|printed"
    r"|mailed"
    r"|filed|replaced|removed|added|created|built|fixed|swapped|installed|ordered|booked|paid"
    r"|deleted"
    r"|migrated|merged|published|uploaded|signed|rotated|restored|repaired|patched|rewrote|closed)"
)
REPORT = re.compile(
    rf"^(?:and |also |then )?(?:i|we|i've|we've|i have|we have) (?:just |also |already "
    rf"|now )?{_CHANGED}\b"
    rf"|^{_CHANGED} (?:the|a|an|all|both|your|our|it|them)\b"
    r"|\b(?:ich|wir) haben? (?!.*\b(?:gelesen|gesehen|geprüft|verglichen|gezählt|geschaut|angesehen"
    r"|gefunden|gedacht|erwartet|gehofft|gehört|gefragt|versucht|nachgesehen|überlegt"
    r"|entschieden)\b)"
    r".{3,80}\b(?:ge\w{3,}|\w{3,}iert|(?:aus|ein|um|ab|an|auf|nach|hoch)ge\w{3,}"
    r"|(?:ver|er|be|ent|zer)\w{3,}t)[.!]?$"
    r"|\bj'ai (?!lu|vu|comparé|compté|regardé|vérifié|trouvé|pensé|essayé|cru|relu|choisi|décidé)"
    r"(?:\w{2,}é|mis|écrit|remis|construit)\b"
    r"|\bhe (?!leído|visto|mirado|comparado|contado|revisado|probado|pensado|decidido|elegido)"
    r"(?:\w{2,}[ai]do|puesto|escrito)\b"
)
"""A report of the assistant about its own change."""

NO_PROBLEM = re.compile(
    r"\b(?:no|none|nothing|never|not|without|zero|kein\w*|nichts|nie|ohne|sans|aucun\w*|rien"
    r"|ning[uú]n\w*|nada|sin|нет|без|ничего)(?: \w+){0,2} (?:lost|lose|errors?|fail\w*|broken"
    r"|crash\w*"
    r"|leak\w*|bugs?|fehler\w*|ausf[aä]ll\w*|verlust\w*|erreurs?|pannes?|error\w*|fallos?|ошиб\w*"
    r"|сбо\w*)\b"  # noqa: RUF001 -- Russian
)
"""A failure that did not happen."""

BREAKS = re.compile(
    r"\bno longer (?:starts?|works?|loads?|prints?|responds?|opens?|arrives?|runs?)\b"
    r"|\b(?:startet|funktioniert|läuft|geht|öffnet|druckt|reagiert|lädt|antwortet"
    r"|schließt)\b.{0,40}"
    r"\bnicht mehr\b"
    r"|\bne (?:marche|fonctionne|démarre|répond|s'ouvre)(?:nt)? plus\b"
    r"|\bya no (?:funciona|arranca|abre|responde|carga)n?\b"
    r"|\b(?:больше|уже) не (?:работает|запускается|открывается|отвечает)\b"
)
"""A thing that has stopped working, in words that otherwise show a correction."""

NOT_DONE = re.compile(
    r"\b(?:not|isn't|aren't|wasn't|hasn't|haven't|never|no one|nothing|will be|to be|should be"
    r"|must be"
    r"|needs? to|need|once|until|if|before|when|unless|would|can be|still|half|almost|nearly"
    r"|nicht|noch|wird|werden|sobald|bevor|wenn|falls|soll|muss|kein|keine"
    r"|pas|sera|seront|quand|dès que|avant|jamais|si"
    r"|no|cuando|será|antes|hasta|si|todavía|aún|falta"
    r"|не|когда|если|будет|будут|до|ещё|еще|пока)\b"
    r"|没|未|还|不|如果|等|まだ|ない|ません|たら|れば|前に"
)
"""Words next to a word like "done" that negate it."""

CORRECTION = _compile_cue(
    """
correction|scratch that|i was wrong|was wrong|were wrong|that was a mistake|my mistake|no longer
not anymore|anymore|any more|change of plan|change of plans|changed my mind|changed our mind
changed our minds|forget what|forget the|take that back|i misspoke|instead of the|is outdated
supersedes|superseded|overrides|overruled|revised|on second thought|turns out|strike that
has changed|have changed|was changed|changed from|changed to|moved from|moved to|has moved
postponed|rescheduled|pushed back|brought forward|replaces the|reverse that|reversed|we reversed
not what i said|contrary to|different from what|new plan|new date|new number|new price|now it's
update on|update:|to correct|let me correct|raised to|lowered to|cut to|went up to|reduced to
increased to|extended to|dropped to|bumped to|renamed to|switched from|switched to|swapped
actually|instead|after all|rather than|now|new|not the|takes over from|stands in for|until now
goes down to|goes up to|slips|slipped|is retired|moved it|they moved|was too|the old one|on leave
died|retired|decommissioned|shut off|from now on|takes over|took over|rises to|drops to
was extended|from monday|make the|make it
abgeschaltet|stillgelegt|steigt auf|sinkt auf|erhöht|gesenkt|verlängert|vorgezogen|verschiebt sich
vertritt|ist krank
ab sofort|jetzt|inzwischen|mittlerweile|künftig|neue|neuer|neues|statt dessen|ersetzt durch
vertritt|springt ein
hors service|monte à|descend à|prolongé|prolongée|avancé|avancée|en congé|la remplace|le remplace
bouge
dorénavant|désormais|maintenant|nouveau|nouvelle|nouvel|changement|passe à|passez à|est remplacé
est remplacée
dado de baja|sube a|baja a|se aplaza|se adelanta|se retrasa|de baja
en adelante|ahora|nuevo|nueva|sustituye|reemplaza|pasa a ser|cambio|cambia
списали|отключили|подняли до|снизили до|увеличили|продлили|сдвинули|в отпуске
впредь|отныне|теперь|новый|новая|новое|новые|другой|другая|другое|поменяй|поменяли|заменяет|заменит
вместо него
korrektur|doch nicht|nicht mehr|stattdessen|umentschieden|planänderung|geändert|ändert sich
verschoben|verlegt|ich lag falsch|war falsch|falsch war|ersetzt|hat sich erledigt|überholt
neuer termin
neuer plan|anders als|zurückgenommen|vergiss|eigentlich|doch|statt|sondern
correction|finalement|en fait|au lieu de|changement de plan|changé d'avis|a changé|n'est plus
ne sont plus|ne plus|reporté|reportée|déplacé|déplacée|remplace|oublie|erreur de ma part|plutôt
corrección|en realidad|al final|en vez de|en lugar de|cambio de plan|cambiado de opinión|ha cambiado
ya no|aplazado|aplazada|pospuesto|se mueve al|olvida|me equivoqué|mejor
на самом деле|поправка|исправление|больше не|вместо|передумал|передумали|изменил|изменилась
изменился|изменилось|перенесли|перенесено|перенесена|ошибся|ошиблась|уже не|новый срок|всё-таки
""",
    """
更正|改为|改成|改到|改用|不再|其实|改了|换成|换到|推迟|取消|变了|变成|说错|搞错|而不是|调整为|提前到
これからは|以后|今は|今後は|新しい|現在は|現在|新的|现在|新|休暇|休假|接手|停用|廃止|訂正|変更
やっぱり|やはり|ではなく|じゃなく|実は|変わりました|変わった|変えます|延期
取り消|間違え|撤回|に変え
""",
)

_ARTICLE = r"(?:on |the |at |in |am |um |den |le |la |el |las |в )?"
NEGATED_VALUE = re.compile(
    rf"(?<!\w)(?:not|nicht|plus|pas|no|не) {_ARTICLE}(?:[\w-]{{1,12}}\d|[$€£]?\d)"
    r"|不是\D{0,3}\d|\d[^、。,]{0,6}(?:ではなく|じゃなく)"
)
"""A value that no longer holds, as in `port 8443, not 8080`"""

EFFECTIVE = re.compile(
    rf"\b(?:from|as of|starting|effective|ab|à partir d[eu']|dès|desde|a partir de|начиная с|с|со) "  # noqa: RUF001 -- Russian
    rf"(?:next |nächste[nrm]? |(?:le|la|el|dem) )?(?:{_MONTHS}|{_WEEKDAYS}|\d{{1,2}}\.)"
    r"|\d{1,2}月(?:\d{1,2}[日号])?(?:から|起)|从.{0,3}月"
)
"""A time from which a value holds, which shows that another value held before."""

STRONG_CORRECTION = _compile_cue(
    """
correction|scratch that|i was wrong|was wrong|were wrong|my mistake|no longer|change of plan
change of plans|changed my mind|changed our mind|changed our minds|forget what|take that back
i misspoke|supersedes|superseded|overrides|overruled|on second thought|strike that|has changed
have changed|changed from|moved from|postponed|rescheduled|let me correct|to correct|we reversed
switched from|not anymore|anymore|new date|new plan|instead of the|is outdated|revised
korrektur|doch nicht|umentschieden|planänderung|nicht mehr|verschoben|ich lag falsch|war falsch
überholt|neuer termin|neuer plan
finalement|changement de plan|changé d'avis|n'est plus|ne sont plus|reporté|reportée|correction
corrección|cambio de plan|cambiado de opinión|ya no|aplazado|aplazada|pospuesto|me equivoqué
поправка|исправление|больше не|передумал|передумали|перенесли|уже не|ошибся|ошиблась
""",
    "更正|改为|改成|改到|不再|推迟|说错|搞错|訂正|変更になり|やっぱり|延期|取り消|間違え|撤回|に変更",
)

PROBLEM = _compile_cue(
    """
fails|failed|failing|broken|breaks|broke|crash|crashes|crashed|bug|doesn't work|does not work
not working|stopped working|outage|went down|is down|was down|error|errors|timed out|corrupt
corrupted|lost|leak|leaks|stuck|times out|time out|won't start|does nothing|finds nothing|hangs
hung|wrong result|regression|rejected|refused|denied
kaputt|fehler|geht nicht|startet nicht|findet nichts|findet keine|bleibt stehen|funktioniert nicht
schlägt fehl|ausfall|abgestürzt|absturz|hängt
erreur|ne marche pas|ne fonctionne pas|plante|planté|en panne|cassé|cassée|échoue|échoué
falla|fallan|falló|error|no funciona|roto|rota|se cayó|caído|se cuelga
ошибка|ошибку|не работает|сломал|сломалось|сломался|падает|упал|зависает|завис|не открывается
""",
    "报错|失败|坏了|错误|崩溃|不工作|挂了|出错|エラー|失敗|壊れ|動かない|動きません|落ちました|障害",
)

CAUSE = _compile_cue(
    """
because|caused by|the cause|root cause|the reason|turned out|turns out|it was the|due to|culprit
comes from|came from|that's why|since
ursache|grund|lag an|liegt an|lag daran|weil|schuld
la cause|à cause|parce que|venait de|vient de|la raison|car
la causa|causa|por culpa|debido|porque|se debe|se debía|la razón
причина|причиной|из-за|потому что|дело в|оказалось
""",
    "原因|因为|由于|所以|導致|导致|原因は|ためです|ためでした|からです|せいで",
)

FIX = _compile_cue(
    """
fixed|the fix|solved|solution|workaround|resolved|helped|helps|works again|works now|remedy
cured|after that it works|running again|is back|patched|works since
behoben|lösung|gelöst|geholfen|hilft|das half|half es|läuft wieder|funktioniert wieder|abhilfe
correctif|résolu|corrigé|solution|réparé|remarche|refonctionne
solución|solucionado|arreglado|resuelto|se arregla|se arregló|funciona de nuevo|vuelve a funcionar
исправил|исправили|исправлено|решили|решение|помогло|починил|починили|снова работает|заработало
""",
    "解决|修复|修好|解決|直りました|直しました|直った|対処|対策|復旧|治りました",
)

REASON = _compile_cue(
    """
because|since|the reason|that's because|so that|otherwise|due to
weil|denn|der grund|damit|sonst|da sonst
parce que|car|la raison|puisque|sinon
porque|ya que|la razón|puesto que|si no
потому что|причина|так как|иначе|чтобы
""",
    "因为|原因是|否则|由于|理由は|からです|ためです|なぜなら",
)
"""The beginning of a sentence that gives the reason for the sentence before it."""

PERSON = _compile_cue(
    """
is responsible|responsible for|contact person|contact|in charge|owner|owns|maintainer|my boss
our lawyer|accountant|reachable|phone|e-mail|email|works on|works at|reports to|vacation|on leave
birthday|landlord|the client is|our contact|takes over|took over|will handle|handles
zuständig|ansprechpartner|ansprechpartnerin|verantwortlich|erreichbar|telefon|urlaub|kümmert sich
übernimmt|vermieter|leitet|betreut
responsable|contact est|s'occupe|joignable|congé|téléphone|dirige
encargado|encargada|responsable|contacto|vacaciones|teléfono|se ocupa|dirige
ответственный|ответственная|отвечает за|контакт|отпуск|телефон|занимается|руководит
""",
    "负责|联系人|电话|休假|接手|担当|連絡先|責任者|休暇|電話|引き継",
)

DATE = re.compile(
    rf"\b\d{{1,2}}(?:st|nd|rd|th|er|\.|º)?\s(?:of\s|de\s)?(?:{_MONTHS})\b"
    rf"|\b(?:{_MONTHS})\s\d{{1,2}}(?:st|nd|rd|th)?\b"
    r"|\b20\d\d-\d\d-\d\d\b|\b\d{1,2}\.\d{1,2}\.(?:20\d\d)?(?!\d)|\b\d{1,2}/\d{1,2}/(?:20)?\d\d\b"
    r"|\b\d{1,2}(?::\d\d)?\s?(?:uhr|[ap]\.?m\b|o'clock)|\b\d{1,2}[h時点]\d{0,2}\b"
    r"|\d{1,2}月\d{1,2}[日号]"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"
    r"|\b(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag)s?\b"
    r"|\b(?:lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche)s?\b"
    r"|\b(?:lunes|martes|miércoles|jueves|viernes|sábado|domingo)\b"
    r"|понедельник|вторник|сред[уы]|четверг|пятниц|суббот|воскресень|周[一二三四五六日]|星期"
    r"|[月火水木金土日]曜"
)
INTERJECTION = re.compile(r"^(?:hm+|oh|ah|ach|well|ну|эх)[,.]? (?=\w)")
"""An interjection without a meaning of its own."""
REPLACED_PERSON = re.compile(
    r"\b(?:on leave|takes? over|took over|stands in|steps in|replaces|is (?:ill|sick)|has left"
    r"|hands over|vertritt|springt|übernimmt|ist krank|im urlaub|hat gekündigt|ersetzt|löst"
    r"|remplace|en congé|prend la relève|passe à|reprend|sustituye|de baja|reemplaza|toma el relevo"
    r"|заменит|заменяет|в отпуске|заболел\w*|вместо|уволил\w*)\b"
    r"|休暇|代わり|引き継|退職|異動|休假|接手|代替|离职|接替|病假"
)
"""Words that show that another person takes over."""
CHANGE_WORD = re.compile(
    r"\b(?:now|new|actually|instead|from now on|jetzt|inzwischen|mittlerweile|künftig|neue[rsn]?"
    r"|nun|ab sofort|maintenant|désormais|nouve(?:au|l|lle)|ahora|nuev[oa]|теперь|новый|новая"
    r"|новое|correction|korrektur|corrección"
    r"|поправка|is|are|costs?|moved|beträgt|liegt|kostet|steigt|sinkt|passe|monte|coûte|est|sont"
    r"|sube|baja|cuesta"
    r"|son)\b"
    r"|以后|これからは|今は|今後は?|新しい|現在は?|やっぱり|訂正|现在|新的|更正"
)
"""Words of a correction that do not belong to its subject."""
QUESTION_END = re.compile(r"[?\uff1f؟]['\"”»)\]]*\s*$")
OFFER_END = re.compile(
    r", (?:shall i|should i|shall we|ok|okay|soll ich|d'accord|vale|¿vale|хорошо)\s?\?\s*$"
)
"""The end of an offer, which is a task until it is answered."""
