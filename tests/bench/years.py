"""The home of the maintenance rows: years of sessions, of which the oldest fifth is to go.

Sessions come in the order of their time, as ids of messages do; all of the oldest have ended.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from session_core import _sqlite3
from tests.bench import build, shapes

DAY_S = 86_400.0
NOW = 1_790_000_000.0
OLD_DAYS = 90
"""So long ago the youngest of those was active that are to go."""

_HOME_SPAN_S = 2 * 365 * DAY_S
_RECENT_SPAN_S = 80 * DAY_S
_BUILDER_SOURCES = ("schema.sql", "fts.py", "fts.sql", "index.sql")
_SOURCE_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class YearsSize:
    """How much is in the home, and how many of its sessions are old."""

    sessions: int
    messages: int
    old: int


YEARS_SIZES = {False: YearsSize(50_000, 2_000_000, 10_000), True: YearsSize(600, 9_000, 120)}
"""The homes of a full run, and of a quick one."""


@dataclass
class BuiltYearsHome:
    """A home that stands."""

    kind: str
    db: str
    sessions: int
    messages: int
    content_bytes: int
    old: int
    old_messages: int

    @property
    def name(self) -> str:
        """The name in the table."""
        return f"years {'hermes' if self.kind == 'hermes' else 'own'}"


class YearsWriter(shapes.HomeWriter):
    """Writes the sessions in the order of their time."""

    def __init__(self, size: YearsSize) -> None:
        self.size = size
        super().__init__(shapes.HomeShape("years", size.sessions, 0))
        self._links.pop(size.old, None)

    @property
    def old_messages(self) -> int:
        """How many messages the old sessions have."""
        return sum(self.lengths[: self.size.old])

    @property
    def ordinary(self) -> int:
        """No session of a certain length is asked for here."""
        return self.longest

    def _draw_lengths(self) -> list[int]:
        """Return lengths as they are: half of them short, a few very long, so many in all."""
        size, drawn = self.size, self._random
        mean = size.messages / size.sessions
        lengths = [1 + int(drawn.lognormvariate(0, 1.2) * mean / 2.2) for _ in range(size.sessions)]
        short = size.messages - sum(lengths)
        step = 1 if short > 0 else -1
        while short:
            at = drawn.randrange(size.sessions)
            if lengths[at] + step > 0:
                lengths[at] += step
                short -= step
        return lengths

    def _plant_texts(self) -> None:
        """Nothing is looked for here."""

    def _build_session(self, number: int, length: int) -> shapes.BenchSession:
        is_old = number < self.size.old
        share = number / self.size.old if is_old else 0.0
        began = NOW - _HOME_SPAN_S + share * (_HOME_SPAN_S - 2 * OLD_DAYS * DAY_S)
        if not is_old:
            among = self.size.sessions - self.size.old
            began = (
                NOW
                - _RECENT_SPAN_S
                + (number - self.size.old) / among * (_RECENT_SPAN_S - 2 * DAY_S)
            )
        step = self._random.uniform(5, 60)
        messages = [self._build_message(number, at, began + step * at) for at in range(length)]
        row = self._build_row(number, began, messages)
        if is_old and row["ended_at"] is None:
            row |= {"ended_at": messages[-1]["timestamp"] + 60, "end_reason": "cli_close"}
        return shapes.BenchSession(row, messages)


def build_home(folder: Path, size: YearsSize, kind: str) -> BuiltYearsHome:
    """Return the home of this size and kind below `folder`, and build it if it is missing."""
    name = f"years-{size.sessions}-{kind}"
    place = folder / f"{name}-{_fingerprint_sources(size, kind)}"
    told = place / "bench.json"
    if told.exists():
        return BuiltYearsHome(**json.loads(told.read_text(encoding="utf-8")))
    for outdated in folder.glob(f"{name}-*"):
        shutil.rmtree(outdated)
    place.mkdir(parents=True)
    content = YearsWriter(size)
    fill = build.fill_hermes_home if kind == "hermes" else build.fill_own_home
    counted = fill(place / "state.db", content)
    built = BuiltYearsHome(
        kind=kind,
        db=str(place / "state.db"),
        sessions=size.sessions,
        messages=counted.messages,
        content_bytes=counted.content_bytes,
        old=size.old,
        old_messages=content.old_messages,
    )
    told.write_text(json.dumps(asdict(built)), encoding="utf-8")
    return built


def _fingerprint_sources(size: YearsSize, kind: str) -> str:
    sources = [_SOURCE_FOLDER / name for name in _SOURCES]
    if kind == "own":
        library = Path(_sqlite3.__file__).parent / "state" / "sqlite"
        sources += [library / name for name in _BUILDER_SOURCES]
    digest = hashlib.sha256(repr(size).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


_SOURCES = ("words.txt", "questions.txt", "text.py", "shapes.py", "build.py", "years.py")
