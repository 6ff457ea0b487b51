"""The course that every system runs, ours and the peers: the same calls, timed the same way.

It stands alone, on the standard library, since it runs in the environments of the peers too.
A system is a class with `imported_s`, `newest`, `page`, `search`, `append` and `close`.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import threading
import time
from pathlib import Path

WARM_UP = 3
LEAST_RUNS, MOST_RUNS = 5, 300
LIST_LIMIT = 20
PAGE_SIZE = 50


def run_job(system, extra=None):
    """Read a job, do it, write the answer."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    do = {
        "read": time_reads,
        "cold": time_cold_list,
        "append": time_appends,
        "routes": time_routes,
        "speak": append_slowly,
    }
    answer = (do | (extra or {}))[job["do"]](system, job)
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")


def time_cold_list(system, job):
    """Time the first list of a new process: import, open and call by themselves."""
    imported_s = system.load(job)
    began = time.perf_counter()
    opened = system(job)
    middle = time.perf_counter()
    ids = opened.newest(LIST_LIMIT)
    done = time.perf_counter()
    opened.close()
    times = {"import": imported_s, "open": middle - began, "call": done - middle}
    return {name: value * 1000 for name, value in times.items()} | {"ids": ids}


def time_reads(system, job):
    """Time lists, pages and searches on one open home."""
    system.load(job)
    opened = system(job)
    rows = {"about": opened.about()}
    for name in job["rows"]:
        rows |= _ROW_FUNCTIONS[name](opened, job)
    opened.close()
    return rows


def _time_list(opened, job):
    return {
        "list": time_calls([lambda: opened.newest(LIST_LIMIT)], job)
        | {"ids": opened.newest(LIST_LIMIT)}
    }


def _time_pages(opened, job):
    rows = {}
    for session, count in (job["home"]["ordinary"], job["home"]["longest"]):
        last = max(0, min(999, count // PAGE_SIZE - 1))
        for name, number in (("first", 0), ("last", last), ("newest", -1)):
            call = opened.page(session, number, PAGE_SIZE, count)
            rows[f"read {name} {count}"] = time_calls([call], job) | {
                "ids": call(),
                "page": number + 1,
            }
    return rows


def _time_searches(opened, job):
    rare, half = job["home"]["rare"], job["home"]["half"]
    return {
        "search rare": time_calls(_make_search_calls(opened, rare), job)
        | {"hits": len(opened.search(rare[0], 20))},
        "search half": time_calls(_make_search_calls(opened, [half]), job)
        | {"hits": len(opened.search(half, 20))},
    }


def _search_tokens(opened, job):
    return {
        name: _search_planted(opened, job, job["home"][name], LIST_LIMIT)
        for name in ("tokens", "cjk")
    }


def _search_questions(opened, job):
    planted = job["home"]["questions"]
    row = _search_planted(opened, job, planted, 5)
    if hasattr(opened, "any_of"):
        asked = ((opened.any_of(text), session) for text, session in planted)
        row["missed_any"] = [
            text for text, session in asked if session not in _find_top_sessions(opened, text, 5)
        ]
    return {"questions": row}


def _search_planted(opened, job, planted, among):
    """Search for all planted texts, and report texts that are not in the first conversations."""
    found = {}

    def ask(text):
        found[text] = opened.search(text, LIST_LIMIT)

    row = time_calls([lambda text=text: ask(text) for text, _ in planted], job)
    firsts = {text: list(dict.fromkeys(sessions))[:among] for text, sessions in found.items()}
    return row | {
        "of": len(planted),
        "missed": [text for text, session in planted if session not in firsts[text]],
        "first": sum(firsts[text][:1] == [session] for text, session in planted),
    }


def _find_top_sessions(opened, text, count):
    """Return the first conversations among many hits."""
    return list(dict.fromkeys(opened.search(text, 50)))[:count]


def _make_search_calls(opened, queries):
    return [lambda query=query: opened.search(query, LIST_LIMIT) for query in queries]


_ROW_FUNCTIONS = {
    "list": _time_list,
    "read": _time_pages,
    "search": _time_searches,
    "tokens": _search_tokens,
    "questions": _search_questions,
}


def time_calls(calls, job):
    """Return the median and the slow end in ms. Several calls take turns."""
    for number in range(WARM_UP):
        calls[number % len(calls)]()
    taken = []
    until = time.perf_counter() + job["seconds"]
    least = max(LEAST_RUNS, len(calls))
    while len(taken) < least or (len(taken) < MOST_RUNS and time.perf_counter() < until):
        call = calls[len(taken) % len(calls)]
        began = time.perf_counter()
        call()
        taken.append((time.perf_counter() - began) * 1000)
    taken.sort()
    slow = taken[min(len(taken) - 1, int(len(taken) * 0.95))]
    return {"ms": statistics.median(taken), "p95": slow, "runs": len(taken)}


def time_appends(system, job):
    """Return appends a second: one writer, then several at once in this process."""
    system.load(job)
    texts = json.loads(Path(job["texts"]).read_text(encoding="utf-8"))
    opened = system(job)
    opened.append(texts[: len(texts) // 10], job["writers"])
    alone, together = opened.append(texts, job["writers"])
    about = opened.about()
    opened.close()
    return {"alone": len(texts) / alone, "together": len(texts) / together, "about": about}


def time_routes(system, job):
    """Return the time of one changed route of many, until the last one is in both copies."""
    system.load(job)
    store = system.routes(job)
    store.fill(job["count"])
    for number in range(WARM_UP):
        store.update(number)
    store.close()
    store = system.routes(job)
    store.update(0)
    singles = []
    began = time.perf_counter()
    for number in range(job["updates"]):
        at = time.perf_counter()
        store.update(number * 7919 % job["count"])
        singles.append((time.perf_counter() - at) * 1000)
    store.close()
    took = time.perf_counter() - began
    return {
        "ms": took * 1000 / job["updates"],
        "median": statistics.median(singles),
        "slowest": max(singles),
    }


def append_slowly(system, job):
    """Append from time to time, stay open until a line arrives, and return the commit times."""
    system.load(job)
    opened = system(job)
    opened.newest(1)
    said = {}
    for number in range(job["count"]):
        # Not in step with a reader that polls at an interval.
        time.sleep(0.5 + random.random() / 2)
        text = f"said at once, {number}"
        opened.say(job["session"], text)
        said[text] = time.time()
    while not Path(job["stop"]).exists():
        time.sleep(0.1)
    opened.close()
    return {"said": said}


def make_route_key(number):
    """Return the key of a chat."""
    return f"agent:main:telegram:dm:{700000000 + number}"


def make_route(number):
    """Return an entry as it is stored, about 1 KB of it."""
    at = "2026-09-01T12:34:56.789012"
    return {
        "session_key": make_route_key(number),
        "session_id": f"20260901_123456_{number:08x}",
        "created_at": at,
        "updated_at": at,
        "display_name": f"Person number {number}",
        "platform": "telegram",
        "chat_type": "dm",
        "origin": {
            "platform": "telegram",
            "chat_id": str(700000000 + number),
            "chat_name": f"Person number {number}",
            "chat_type": "dm",
            "user_id": str(700000000 + number),
            "user_name": f"person_{number}",
            "thread_id": None,
            "chat_topic": None,
        },
    }


def time_in_threads(write, texts, writers):
    """Time `write(number, texts)` in so many threads, each with its share of the texts."""
    shares = [texts[number::writers] for number in range(writers)]
    ready = threading.Barrier(writers + 1)

    def work(number):
        ready.wait()
        write(number, shares[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began
