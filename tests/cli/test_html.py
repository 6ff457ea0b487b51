"""The page of `stats` in a browser: light, dark, narrow and without network."""

from __future__ import annotations

import html
import json
import re
import time

import pytest

from session_core import SessionDB
from tests.cli.browser import read_contents, take_picture
from tests.cli.command_user import CommandUser

WIDE, PHONE = 900, 390
LONG = "x" * 300


@pytest.fixture(name="page", scope="module")
def _page(forks, tmp_path_factory):
    """The page of a home with sessions of half a year, one with an unsafe source name."""
    folder = tmp_path_factory.mktemp("person")
    person = CommandUser(forks, folder, folder / "h")
    now = time.time()
    with SessionDB(person.home / "state.db") as db:
        for week in range(24):
            for number in range(1 + week % 5):
                row = {"source": "cli", "cwd": f"/srv/{'x' * 40}/site-{number % 2}"}
                said = {"create": row, "timestamp": now - week * 604_800 - 60}
                name = f"s{week}_{number}"
                db.append_message(name, "user", "hello there", **said)
                spent = {"input_tokens": 90_000 + week, "estimated_cost_usd": 0.5 + number}
                db.update_token_counts(name, model=f"large-{number}", **spent)
        for name, source in (("long", LONG), ("bad", "</style><script>document.title=1</script>")):
            db.append_message(name, "user", "hello", create={"source": source})
    assert person.run("stats", "--html", "page.html").code == 0
    return folder / "page.html"


def compute_luminance(colour):
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def compute_contrast(one, other):
    high, low = sorted((compute_luminance(one), compute_luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def read_colors(page):
    """Return the colors by name, light theme first."""
    style = page.read_text("utf-8")
    found = [dict(re.findall(r"--([\w-]+): #(\w{6})", part)) for part in style.split("@media")[:2]]
    return [{name: tuple(bytes.fromhex(value)) for name, value in item.items()} for item in found]


def measure_page(page, width):
    """Return the width of the page in a window and the resources that it requested."""
    asked = """
      const d = document.querySelector('iframe').contentDocument, w = d.documentElement;
      const out = [...d.querySelectorAll('body *')].filter(
        e => e.getBoundingClientRect().right > w.clientWidth + 0.5);
      document.body.dataset.found = JSON.stringify(
        {room: w.clientWidth, taken: w.scrollWidth, out: out.map(e => e.outerHTML),
         calls: d.defaultView.performance.getEntriesByType('resource').map(e => e.name)});
    """
    inside = html.escape(page.read_text("utf-8"), quote=True)
    frame = f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{inside}"></iframe>'
    around = page.with_name(f"around{width}.html")
    around.write_text(f"<body>{frame}<script>onload = () => {{{asked}}}</script>", "utf-8")
    dumped = read_contents(around, page.parent)
    return json.loads(html.unescape(re.search(r'data-found="([^"]*)"', dumped)[1]))


@pytest.mark.requirement("reports:browser")
@pytest.mark.system
def test_page_follows_color_scheme(page, tmp_path):
    light, dark = read_colors(page)
    for names, is_dark in ((light, False), (dark, True)):
        picture = take_picture(page, tmp_path, width=WIDE, height=1400, dark=is_dark)
        assert picture.width == WIDE
        assert picture.get_pixel(5, 5) == names["paper"]
        assert {names["ink"], names["bar"], names["track"]} <= picture.list_colors()


@pytest.mark.requirement("reports:browser")
@pytest.mark.system
@pytest.mark.parametrize("width", [320, PHONE, WIDE])
def test_page_fits_windows_without_network(page, width):
    found = measure_page(page, width)
    assert found == {"room": width, "taken": width, "out": [], "calls": []}


@pytest.mark.requirement("reports:browser")
@pytest.mark.system
def test_stored_text_runs_no_script(page, tmp_path):
    dumped = read_contents(page, tmp_path)
    assert "<title>Sessions in" in dumped
    assert "<script>" not in dumped
    assert dumped.count("<style>") == 1


@pytest.mark.requirement("reports:browser")
def test_page_text_has_enough_contrast(page):
    for names in read_colors(page):
        for text in ("ink", "dim", "mark"):
            assert compute_contrast(names[text], names["paper"]) >= 4.5
        assert compute_contrast(names["bar"], names["paper"]) >= 3
        assert compute_contrast(names["bar"], names["track"]) >= 3


def test_week_column_has_tooltip(page):
    titles = re.findall(r"<title>(Week of [^<]*)</title>", page.read_text("utf-8"))
    assert len(titles) == 26
    assert titles[-1].endswith(" messages, " + titles[-1].rpartition(", ")[2])
    assert re.search(r": \d+ messages, about ", titles[-1])


def read_sections(page):
    """Return the text of each section of the first article by its head."""
    overview = page.read_text("utf-8").partition("</article>")[0]
    sections = overview.split("<section>")[1:]
    found = [re.sub(r"<title>.*?</title>|<[^>]+>", " ", section).split() for section in sections]
    return {" ".join(words[:3]): words[3:] for words in found}


def test_page_shows_cost_and_tokens(page):
    sections = read_sections(page)
    for head in ("Cost by week", "Tokens by week", "Cost by model", "Cost by project"):
        assert sections[head], head
    assert sections["Cost by week"][-1:] == ["week"]
    assert "$16" in sections["Cost by week"]
    assert {"large-0", "large-4"} <= set(sections["Tokens by model"])
    assert any(word.endswith("/site-1") for word in sections["Cost by project"])


def test_page_lists_top_sessions_and_stores(page):
    text = page.read_text("utf-8")
    top = text.partition("Top sessions")[2].partition("</section>")[0]
    assert top.count("<tr>") == 11
    assert top.index("$4.50") < top.index("$3.50")
    stores = text.partition(">Stores<")[2].partition("</section>")[0]
    assert re.findall(r"<td[^>]*>([^<]*)</td>", stores)[:2] == ["own", "72"]
