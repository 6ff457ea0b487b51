"""Regular expressions for facts in a part of a line, and the parser of to-do items.

Each expression is linear: repetitions are bounded or end at a character that they exclude. To-do
lists may be text with boxes, or JSON of an agent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from session_core.compression.extractive import keywords
from session_core.state.search_text import SPACELESS_CHARS

BREAK = SPACELESS_CHARS + "\u3000-\u303f\uff01-\uff65\u2018-\u201f\u00ab\u00bb"
"""Characters of scripts without spaces, and quotes, at which a name ends."""

WORD = re.compile(r"\w+")
SPACELESS_SIGN = re.compile(f"[{SPACELESS_CHARS}]")


def _split_phrases(phrases: str) -> list[str]:
    parts = [part.strip() for line in phrases.splitlines() for part in line.split("|")]
    return sorted(filter(None, parts), key=len, reverse=True)


def _compile_phrases(phrases: str) -> tuple[frozenset[str], re.Pattern[str]]:
    listed = _split_phrases(phrases)
    firsts = frozenset(WORD.findall(phrase)[0] for phrase in listed)
    return firsts, re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, listed))})(?!\w)")


DECIDED_FIRSTS, DECIDED = _compile_phrases(keywords.DECISION_PHRASES)
TO_DO_FIRSTS, TO_DO = _compile_phrases(keywords.TASK_PHRASES)
UNSPACED_DECISION = re.compile("|".join(_split_phrases(keywords.UNSPACED_DECISION_PHRASES)))
UNSPACED_TASK = re.compile("|".join(_split_phrases(keywords.UNSPACED_TASK_PHRASES)))
TASK_SIGN = re.compile(r"\s*(?:[-*+]\s+|\d+[.)]\s+)?\[[ ]?\]\s|.{0,120}\b(?:TODO|FIXME|XXX|TBD)\b")
_JSON_STRING = r"\"((?:[^\"\\]|\\.){3,400})\""
_ITEM_TEXT = rf"\"(?:content|task|title|text|description|name|step|subject)\":\s?{_JSON_STRING}"
_OPEN_STATUS = (
    r"\"(?:status|state)\":\s?\"(?:pending|in[_ -]progress|open|todo|to[_ -]do|not[_ -]started"
    r"|blocked|waiting)\""
)
OPEN_JSON_ITEM = re.compile(
    rf"{_ITEM_TEXT}[^{{}}]{{0,300}}?{_OPEN_STATUS}|{_OPEN_STATUS}[^{{}}]{{0,300}}?{_ITEM_TEXT}",
    re.IGNORECASE,
)
"""An open item in a to-do list that an agent keeps as JSON."""
CHECKBOX = re.compile(r"(?:[-*+]\s+)?\[(?:(?P<done>[xX✓])|[ ]?)\]\s+")

LIST_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)]|\[[ ]?\])\s+")
LIST_HEADING = re.compile(r"[:\uff1a]\s*\**\s*$|^\s*#{1,6}\s|^\s*\*\*[^*]+\*\*\s*$")
"""The end or beginning of a line before a list."""

URL = re.compile(
    rf"(?<![A-Za-z0-9])(?:[A-Za-z][A-Za-z0-9+.-]{{1,20}}://|www\.|mailto:)"
    rf"[^\s<>\"`|\\^{BREAK}]{{2,2000}}"
)
WINDOWS_PATH = re.compile(
    r"(?<![A-Za-z0-9])(?:[A-Za-z]:\\{1,2}|\\\\[\w.$-]{1,80}\\{1,2})"
    r"(?:[^\\/:*?\"'`<>|,;\r\n]{1,80}\\{1,2}){0,24}[^\\/:*?\"'`<>|,;()\s]{1,160}(?::\d{1,7}){0,2}"
)
BRACKETED_ADDRESS = re.compile(
    r"(?<![\w\]])\[(?=[^\]]*(?:::|:[^\]]*:|\.))[0-9a-fA-F:.]{2,45}(?:%\w{1,20})?\]:\d{1,5}(?!\d)"
)
QUOTED_PATH = re.compile(r"([\"'`])((?:[A-Za-z]:[\\/]|~?/|\.{1,2}/)[^\"'`\n]{1,240})\1")
WIDE_PATH = re.compile(r"[A-Za-z0-9_.@+~-]{0,60}(?:[/\\][\w.@+-]{1,120}){1,24}")
WIDE_TAIL = re.compile(rf"\.[A-Za-z0-9]{{1,8}}(?=[{BREAK}])")

TOKEN = re.compile(
    rf"(?:[^\s\"'`<>|;,(){{}}\[\]{BREAK}]|(?<=\d),(?=\d{{3}})"
    rf"|(?<=/)\[[\w.-]{{1,40}}\]|(?<=\$)\{{\w{{1,60}}\}})+"
)
_LINE_NUMBER = r"(?::\d{1,7}){0,2}"
_EXTENSIONS = "|".join(sorted(keywords.EXTENSIONS.split(), key=len, reverse=True))
SLASHED_NAME = re.compile(
    r"(?:feature|feat|fix|bugfix|hotfix|release|chore|origin|upstream|refs|heads|deploy|deployment"
    r"|pod|svc|service|statefulset|application|text|image|audio|video|users?|docs|refactor)/\S+"
    r"|[A-Za-z][\w.]{1,39}/(?=\w*[-_\d])[\w.-]{3,80}"
)
"""Two names with a slash between them, such as a branch, a pod or a type."""
FILE_NAME = re.compile(
    rf"[\w@+.-]*\.(?:{_EXTENSIONS}){_LINE_NUMBER}"
    rf"|(?:Dockerfile|Makefile|Containerfile|Jenkinsfile|Procfile|Vagrantfile|Rakefile|Gemfile"
    rf"|CODEOWNERS|\.[a-z]+(?:rc|ignore|attributes|config)|\.env(?:\.\w+)?){_LINE_NUMBER}"
)
CAMEL_CASE = re.compile(r"[a-zß-öø-ÿ][A-ZÀ-ÖØ-Þ]")
ROOTED_PATH = re.compile(r"(?:~[\w.-]{0,40}|\.{1,2}|\$\w{1,60}|\$\{\w{1,60}\}|[A-Za-z]:)?[/\\]")

_UNITS = "|".join(sorted(keywords.UNITS.split(), key=len, reverse=True))
_UNSPACED_UNITS = "|".join(_split_phrases(keywords.UNSPACED_UNITS))
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
NUMBER = re.compile(
    rf"(?:(?<![\w./:@#=\\-])|(?<=[{SPACELESS_CHARS}]))(?:[~≈±<>+-]{{1,2}})?[$€£¥₹]?"
    r"\d{1,40}(?:[.,:'\u2019_/-]\d{1,20}){0,8}"
    rf"(?:[ \u00a0\u202f]?(?:{_UNITS}|[%‰€£¥₹])(?!\w)"
    r"(?:/(?:s|sec|min|h|hour|day|month|user|core))?"
    rf"|[ ]?(?:{_UNSPACED_UNITS})|T\d[\d:.,]{{1,16}}(?:Z|[+-]\d\d:?\d\d)?"
    r"|[ ](?!(?:from|with|that|this|then|when|into|over|were|have|will|been|also|each|such)\b)"
    rf"[^\W\d_{SPACELESS_CHARS}]{{4,24}}(?!\w)|(?!\w)|(?=[{SPACELESS_CHARS}]))",
    re.IGNORECASE,
)
SETTING = re.compile(
    r"(?:(?<![\w.])[A-Z][A-Z0-9]{0,40}(?:_[A-Z0-9]{1,40}){1,8}"
    r"|\b(?:const|final|constexpr|val|static let)\s(?:[\w:<>]{1,40}\s)?[A-Za-z_]\w{1,60})\s?"
    r"(?::\s?[\w.\[\]]{1,40}\s?)?(?:=|:=|:)\s?"
    r"(?:[+-]?\d[\w.,]{0,40}(?:\s?\*\s?\d[\w.]{0,20}){0,3}|True|False)(?![\w(])"
)
"""A constant with its value, as in code and in environments."""
VALUE_PREFIX = re.compile(
    r"(?:[=:\uff1a为是は]|\b(?:is|are|was|to|of|at|from|by|after|than|exactly|only|max|min|ist|sind|auf|es|son"
    r"|est|sont))[ ]?$",
    re.IGNORECASE,
)
NUMBER_UNIT = re.compile(
    rf"[$€£¥₹]|\d[ \u00a0\u202f]?(?:{_UNITS}|[%‰€£¥₹])(?!\w)|(?:{_UNSPACED_UNITS})$",
    re.IGNORECASE,
)
_LOG_PROGRAM = r"(?:(?:[\w.-]{1,60} )?[\w./@-]{1,60}\[\d{1,9}\]:\s)?"
_LOG_SERVICE = r"[A-Za-z][\w.-]{0,60}-\d{1,4}\s{2,40}\|\s+"
LOG_TIMESTAMP = re.compile(
    rf"(?:{_LOG_SERVICE})?"
    r"\s*[\[(]?(?:\d{4}[-/]\d\d[-/]\d\d[T ])?\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?"
    rf"(?:Z|[+-]\d\d:?\d\d)?[\])]?\s+{_LOG_PROGRAM}"
    rf"|\s*(?:{_MONTHS})\s+\d{{1,2}}\s\d\d:\d\d:\d\d\s+{_LOG_PROGRAM}|{_LOG_SERVICE}",
    re.IGNORECASE,
)
"""The timestamp at the beginning of a log line."""

EXCEPTION = re.compile(
    r"(?<![\w.])(?:[A-Za-z_$][\w$]{0,60}[.:]{1,2}){0,12}"
    r"[A-Za-z_]?\w{0,80}(?:Error|Exception|Panic|Fault|Failure|Interrupt|Timeout|Warning|Exit)"
    r"(?:\[\w{1,12}\])?(?=:\s|\(|$|\s*[:\uff1a])"
)
RAISED_EXCEPTION = re.compile(r"(?<![\w.])(?:[A-Za-z_]\w{0,60}\.){1,8}[A-Z][a-z]\w{1,80}:\s")
"""The last line of a traceback, with any name of an exception."""

FAILURE_WORD = re.compile(
    r"\b(?:ERROR|FATAL|CRITICAL|SEVERE|EMERG|ALERT|PANIC|FAILED|FAILURE|FAIL|OOMKilled|\w{1,20}BackOff)\b"
    r"|\blevel=\"?(?:error|fatal|critical|panic)|\"(?:level|severity)\":\s?\"(?:error|fatal|critical)"
    r"|\[(?:error|fatal|crit|critical)\]|npm ERR!|thread '[^']{1,80}' panicked"
)
FOLDED_FAILURE_WORD = re.compile(
    r"(?:^|[\s>|\"'`(])(?:\w{1,40}: )?(?:error|fatal|panic|failure|fehler|erreur|errore|ошибка)"
    r"(?:\[\w{1,12}\]| \w{1,12})?\s?[:\uff1a]"
    r"|\bexit(?:ed|s)?(?: with)?(?: exit)?(?: code| status)?[ :=]{1,3}-?[1-9]\d{0,9}"
    r"|\bexit (?:code|status)[ :=]{1,3}[1-9]|\breturned (?:non-zero|[1-9])|\brc=[1-9]"
    r"|segmentation fault|core dumped|out of memory|stack overflow|broken pipe|deadlock"
    r"|command not found|no such (?:file|table|column|host|module)|permission denied|access denied"
    r"|connection (?:refused|reset|aborted|closed)|timed out|timeout (?:of|after|exceeded)"
    r"|unable to|could not|cannot (?:find|open|import|connect|read|resolve|allocate)"
    r"|\bfailed (?:to|with|at|because|due)|\bfailed:|segfault|\bkilled\b.{0,20}\b(?:signal|oom|-9)"
    r"|http(?:/[\d.]{1,3})?[ :]{1,2}(?:status )?[45]\d\d\b|\bstatus(?: code)?[ :=]{1,3}[45]\d\d\b"
    r"|unexpected (?:token|end|eof|character|identifier|indent|keyword|argument|response|status)"
    r"|no space left|disk (?:is )?full|quota exceeded|too many (?:open|requests|connections)"
    r"|certificate .{0,60}?(?:expired|invalid|untrusted|verif)|syntax error|duplicate (?:key|entry)"
    r"|violates (?:\w+ ){0,2}constraint|undefined (?:variable|reference|symbol|method|function)"
    r"|(?:does not|doesn't) exist|already (?:exists|in use)|not (?:permitted|allowed|authorized)"
    r"|(?:does|do|did) not match|mismatch(?:ed)?\b|refus(?:ed|ing) to|was rejected|unhandled \w"
    r"|closed (?:the|its) connection|both modified:|merge conflict|assertion failed"
    r"|\bexpected\b.{1,80}\b(?:to (?:be|equal|have|match|contain)|but|got|received|found)\b"
    r"|, want(?:ed)? |\bgot .{1,60}\b(?:want|expected)\b"
    r"|\b(?:errno|sqlstate|ora-|sigsegv|sigkill|sigabrt)\b"
    r"|错误[:\uff1a]|錯誤[:\uff1a]|エラー[:\uff1a]|失败[:\uff1a]|오류[:\uff1a]|异常[:\uff1a]|例外[:\uff1a]"
)
LOOKUP_COMMAND = re.compile(
    r"(?:sudo )?(?:(?:ls|cat|bat|head|tail|less|tree|du|df|find|fd|rg|grep|wc|stat|ps|pwd|which|top"
    r"|env)\b"
    r"|git (?:status|log|diff|show|blame|grep|branch|remote)\b|journalctl\b|systemctl status"
    r"|kubectl (?:get|describe|logs|top)\b"
    r"|(?:docker|podman)(?: compose)? (?:ps|logs|images|inspect)\b"
    r"|curl -s[a-zA-Z]* https?:|select .{1,200}\bfrom\b)",
    re.IGNORECASE,
)
"""A command that only reads, whose output is easily obtained again."""
CODE_LINE = re.compile(
    r"[+-]?\s*(?:import |from \S+ import |return\b|(?:if|for|while) .{1,80}:$|def |class |else:"
    r"|try:|except\b|func |fn |let |const |var |public |private |static |package |use |#include"
    r"|export |async |await |\w[\w.]* = \w[\w.]*\(|@\w)"
)
"""The beginning of a line of code, in the most common languages."""
QUOTED_TEXT = re.compile(
    r"\"([^\"\n]{3,400})\"|`([^`\n]{3,400}(?:`(?=[A-Za-z0-9_])[^`\n]{1,80}`[^`\n]{1,200}){0,4})`|“([^”\n]{3,400})”|「([^」\n]{3,400})」"
)
JSON_ERROR = re.compile(
    rf"\"\w{{0,40}}(?:error|exception|failure|fault|stderr|errmsg)\w{{0,20}}\":\s?{_JSON_STRING}"
    r"|\"\w{0,40}(?:error|exception|failure)\w{0,20}\":\s?\{[^{}]{0,200}?"
    rf"\"(?:message|details?|reason|text|description)\":\s?{_JSON_STRING}"
    r"|\"(?:lvl|level|severity|loglevel)\":\s?\"(?:error|fatal|critical|panic)\"[^{}]{0,300}?"
    rf"\"(?:msg|message|error|err)\":\s?{_JSON_STRING}",
    re.IGNORECASE,
)
"""An error message in JSON."""
FAILURE_HINTS = (
    "unexpected", "no space", "full", "quota", "too many", "certificate", "syntax", "duplicate",
    "match", "refus", "reject", "unhandled", "conflict", "modified", "assert", "expected", "want",
    "backoff", "violates", "undefined", "exist", "in use", "not permitted", "not allowed",
    "not authorized",
    "err", "exception", "fail", "fatal", "panic", "denied", "refused", "not found", "exit",
    "critical", "timeout", "timed out", "kill", "memory", "unable", "could not", "cannot", "reset",
    "segment", "returned", "status", "http", "sql", "sig", "fehler", "fault", "broken", "severe",
    "deadlock", "warning", "rc=", "emerg", "alert", "interrupt", "crash", "overflow", "closed",
    "no such", "ошибка", "错误", "錯誤", "エラー", "失败", "오류", "异常", "例外", "core dump",
)  # fmt: skip

PROMPT = re.compile(
    r"\s*(?:\([\w.-]{1,40}\)\s)?(?:[\w.-]{1,40}@[\w.-]{1,60}[: ]?[^\s$#%>]{0,80}\s?[$#%]"
    r"|[$\u276f➜]|>>>|PS [^>]{1,120}>|[A-Za-z]:\\[^>]{0,120}>)\s+(\S.*)"
)
COMMAND_START = re.compile(
    r"\s*(?:[-*+]\s+|\d{1,3}[.)]\s+)?`?(?:[A-Z_][A-Z0-9_]{0,60}=\S{1,200}\s+)*((?:\./|/)?[\w./-]{1,120})\s"
)
SHELL_SIGN = re.compile(
    r"\s--?[A-Za-z]|[|>$=&*~]|\s\.{0,2}/\w|\s\S{1,80}\.\w{1,5}\b|\s\w{1,40}[-_:/]\w"
)
CODE_SPAN = re.compile(r"`{1,2}([^`\n]{2,400})`{1,2}")
RUN_INSTRUCTION = re.compile(
    r"(?:\b(?:run|ran|running|execute|executed|exec|invoke|type|command(?: is| was)?|cmd"
    r"|führe|ausführen|ejecuta|ejecutar|exécute|exécuter|lance|lancer|запусти|выполни)|运行|執行|执行|実行|실행)"
    r"(?:[ ]?[:\uff1a])?[ ]?",
    re.IGNORECASE,
)
FENCE = re.compile(r"\s*(?:```|~~~)\s*([\w+-]*)")
SHELLS = frozenset(
    ("sh", "bash", "shell", "zsh", "fish", "console", "terminal", "powershell", "ps1", "cmd", "bat")
)


_TEXT_FIELDS = ("content", "task", "title", "text", "description", "name", "step", "subject")
_STATE_FIELDS = ("status", "state")
_OPEN_STATES = frozenset(
    ("pending", "in_progress", "open", "todo", "to_do", "not_started", "blocked", "waiting")
)
_DONE_STATES = frozenset(("completed", "complete", "done", "finished", "closed"))
_KNOWN_FIELDS = frozenset(("id", *_TEXT_FIELDS, *_STATE_FIELDS))


def format_to_do_item(item: Mapping[Any, Any]) -> str | None:
    """Return a to-do item as text with a box, or None for any other value."""
    text = next((item[key] for key in _TEXT_FIELDS if isinstance(item.get(key), str)), "")
    state = next((item[key] for key in _STATE_FIELDS if isinstance(item.get(key), str)), "")
    state = state.lower().replace(" ", "_").replace("-", "_")
    if not text or state not in _OPEN_STATES | _DONE_STATES:
        return None
    return f"[{' ' if state in _OPEN_STATES else 'x'}] {text}"


def is_ticked(text: str) -> bool:
    """Return whether a line has a ticked box."""
    box = CHECKBOX.match(text)
    return box is not None and box["done"] is not None


def get_other_fields(item: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the fields of a to-do item except its text, state and id."""
    return {key: value for key, value in item.items() if key not in _KNOWN_FIELDS}
