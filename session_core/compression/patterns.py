"""The expressions by which facts are found in one piece of a line.

Each is linear: what repeats is bounded, or ends at a sign that cannot be inside of it.
"""

from __future__ import annotations

import re

from session_core.compression import cues
from session_core.state.searchable import SPACELESS

BREAK = SPACELESS + "\u3000-\u303f\uff01-\uff65\u2018-\u201f\u00ab\u00bb"
"""Characters of scripts without spaces, and quotes: no name goes on over one."""

WORD = re.compile(r"\w+")
SPACELESS_SIGN = re.compile(f"[{SPACELESS}]")


def _listed(phrases: str) -> list[str]:
    found = [part.strip() for line in phrases.splitlines() for part in line.split("|")]
    return sorted(filter(None, found), key=len, reverse=True)


def _words(phrases: str) -> tuple[frozenset[str], re.Pattern[str]]:
    listed = _listed(phrases)
    firsts = frozenset(WORD.findall(phrase)[0] for phrase in listed)
    return firsts, re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, listed))})(?!\w)")


DECIDED_FIRSTS, DECIDED = _words(cues.DECIDED)
TO_DO_FIRSTS, TO_DO = _words(cues.TO_DO)
DECIDED_UNSPACED = re.compile("|".join(_listed(cues.DECIDED_UNSPACED)))
TO_DO_UNSPACED = re.compile("|".join(_listed(cues.TO_DO_UNSPACED)))
TO_DO_SIGN = re.compile(r"\s*(?:[-*+]\s+|\d+[.)]\s+)?\[[ ]?\]\s|.{0,40}\b(?:TODO|FIXME|XXX|TBD)\b")
DONE = re.compile(r"(?:[-*+]\s+)?\[[xX✓]\]\s+")

URL = re.compile(
    rf"(?<![A-Za-z0-9])(?:[A-Za-z][A-Za-z0-9+.-]{{1,20}}://|www\.|mailto:)"
    rf"[^\s<>\"`|\\^{BREAK}]{{2,2000}}"
)
WINDOWS_PATH = re.compile(
    r"(?<![A-Za-z0-9])(?:[A-Za-z]:\\{1,2}|\\\\[\w.$-]{1,80}\\{1,2})"
    r"(?:[^\\/:*?\"'`<>|,;\r\n]{1,80}\\{1,2}){0,24}[^\\/:*?\"'`<>|,;()\s]{1,160}(?::\d{1,7}){0,2}"
)
QUOTED_PATH = re.compile(r"([\"'`])((?:[A-Za-z]:[\\/]|~?/|\.{1,2}/)[^\"'`\n]{1,240})\1")
WIDE_PATH = re.compile(r"(?:[/\\][\w.@+-]{1,120}){1,24}")
WIDE_TAIL = re.compile(rf"\.[A-Za-z0-9]{{1,8}}(?=[{BREAK}])")

TOKEN = re.compile(
    rf"(?:[^\s\"'`<>|;,(){{}}\[\]{BREAK}]|(?<=\d),(?=\d{{3}})"
    rf"|(?<=/)\[[\w.-]{{1,40}}\]|(?<=\$)\{{\w{{1,60}}\}})+"
)
_LINE_NUMBER = r"(?::\d{1,7}){0,2}"
_EXTENSIONS = "|".join(sorted(cues.EXTENSIONS.split(), key=len, reverse=True))
SLASHED = re.compile(
    r"(?:feature|feat|fix|bugfix|hotfix|release|chore|origin|upstream|refs|heads|deploy|deployment"
    r"|pod|svc|service|statefulset|application|text|image|audio|video|users?|docs|refactor)/\S+"
)
FILE_NAME = re.compile(
    rf"[\w@+.-]*\.(?:{_EXTENSIONS}){_LINE_NUMBER}"
    rf"|(?:Dockerfile|Makefile|Containerfile|Jenkinsfile|Procfile|Vagrantfile|Rakefile|Gemfile"
    rf"|CODEOWNERS|\.[a-z]+(?:rc|ignore|attributes|config)|\.env(?:\.\w+)?){_LINE_NUMBER}"
)
CAMEL = re.compile(r"[a-zß-öø-ÿ][A-ZÀ-ÖØ-Þ]")
ROOTED = re.compile(r"(?:~[\w.-]{0,40}|\.{1,2}|\$\w{1,60}|\$\{\w{1,60}\}|[A-Za-z]:)?[/\\]")

_UNITS = "|".join(sorted(cues.UNITS.split(), key=len, reverse=True))
_UNSPACED_UNITS = "|".join(_listed(cues.UNSPACED_UNITS))
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
NUMBER = re.compile(
    rf"(?:(?<![\w./:@#=\\-])|(?<=[{SPACELESS}]))(?:[~≈±<>+-]{{1,2}})?[$€£¥₹]?"
    r"\d{1,40}(?:[.,:'\u2019_/-]\d{1,20}){0,8}"
    rf"(?:[ \u00a0\u202f]?(?:{_UNITS}|[%‰€£¥₹])(?!\w)"
    r"(?:/(?:s|sec|min|h|hour|day|month|user|core))?"
    rf"|[ ]?(?:{_UNSPACED_UNITS})|T\d[\d:.,]{{1,16}}(?:Z|[+-]\d\d:?\d\d)?"
    r"|[ ](?!(?:from|with|that|this|then|when|into|over|were|have|will|been|also|each|such)\b)"
    rf"[^\W\d_{SPACELESS}]{{4,24}}(?!\w)|(?!\w)|(?=[{SPACELESS}]))",
    re.IGNORECASE,
)
VALUE_OF = re.compile(
    r"(?:[=:\uff1a为是は]|\b(?:is|are|was|to|of|at|from|by|after|than|exactly|only|max|min|ist|sind|auf|es|son"
    r"|est|sont))[ ]?$",
    re.IGNORECASE,
)
HAS_UNIT = re.compile(
    rf"[$€£¥₹]|\d[ \u00a0\u202f]?(?:{_UNITS}|[%‰€£¥₹])(?!\w)|(?:{_UNSPACED_UNITS})$",
    re.IGNORECASE,
)
STAMP = re.compile(
    r"\s*[\[(]?(?:\d{4}[-/]\d\d[-/]\d\d[T ])?\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?"
    r"(?:Z|[+-]\d\d:?\d\d)?[\])]?\s+"
    rf"|\s*(?:{_MONTHS})\s+\d{{1,2}}\s\d\d:\d\d:\d\d\s+",
    re.IGNORECASE,
)
"""The time at the beginning of a line of a log, which is no fact of its own."""

EXCEPTION = re.compile(
    r"(?<![\w.])(?:[A-Za-z_$][\w$]{0,60}[.:]{1,2}){0,12}"
    r"[A-Za-z_]?\w{0,80}(?:Error|Exception|Panic|Fault|Failure|Interrupt|Timeout|Warning|Exit)"
    r"(?:\[\w{1,12}\])?(?=:\s|\(|$|\s*[:\uff1a])"
)
RAISED = re.compile(r"(?<![\w.])(?:[A-Za-z_]\w{0,60}\.){1,8}[A-Z][a-z]\w{1,80}:\s")
"""How a traceback ends, whatever the name of the exception is."""

FAILED = re.compile(
    r"\b(?:ERROR|FATAL|CRITICAL|SEVERE|EMERG|ALERT|PANIC|FAILED|FAILURE|OOMKilled|CrashLoopBackOff)\b"
    r"|\blevel=\"?(?:error|fatal|critical|panic)|\"(?:level|severity)\":\s?\"(?:error|fatal|critical)"
    r"|\[(?:error|fatal|crit|critical)\]|npm ERR!|thread '[^']{1,80}' panicked"
)
FAILED_FOLDED = re.compile(
    r"(?:^|[\s>|])(?:\w{1,40}: )?(?:error|fatal|panic|failure|fehler|erreur|errore|ошибка)"
    r"(?:\[\w{1,12}\]| \w{1,12})?\s?[:\uff1a]"
    r"|\bexit(?:ed|s)?(?: with)?(?: exit)?(?: code| status)?[ :=]{1,3}-?[1-9]\d{0,9}"
    r"|\bexit (?:code|status)[ :=]{1,3}[1-9]|\breturned (?:non-zero|[1-9])|\brc=[1-9]"
    r"|segmentation fault|core dumped|out of memory|stack overflow|broken pipe|deadlock"
    r"|command not found|no such (?:file|table|column|host|module)|permission denied|access denied"
    r"|connection (?:refused|reset|aborted|closed)|timed out|timeout (?:of|after|exceeded)"
    r"|unable to|could not|cannot (?:find|open|import|connect|read|resolve|allocate)"
    r"|\bfailed (?:to|with|at|because|due)|\bfailed:|segfault|\bkilled\b.{0,20}\b(?:signal|oom|-9)"
    r"|http(?:/[\d.]{1,3})?[ :]{1,2}(?:status )?[45]\d\d\b|\bstatus(?: code)?[ :=]{1,3}[45]\d\d\b"
    r"|\b(?:errno|sqlstate|ora-|sigsegv|sigkill|sigabrt)\b"
    r"|错误[:\uff1a]|錯誤[:\uff1a]|エラー[:\uff1a]|失败[:\uff1a]|오류[:\uff1a]|异常[:\uff1a]|例外[:\uff1a]"
)
FAILED_HINTS = (
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
TOLD_TO = re.compile(
    r"(?:\b(?:run|ran|running|execute|executed|exec|invoke|type|command(?: is| was)?|cmd"
    r"|führe|ausführen|ejecuta|ejecutar|exécute|exécuter|lance|lancer|запусти|выполни)|运行|執行|执行|実行|실행)"
    r"(?:[ ]?[:\uff1a])?[ ]?",
    re.IGNORECASE,
)
FENCE = re.compile(r"\s*(?:```|~~~)\s*([\w+-]*)")
SHELLS = frozenset(
    ("sh", "bash", "shell", "zsh", "fish", "console", "terminal", "powershell", "ps1", "cmd", "bat")
)
