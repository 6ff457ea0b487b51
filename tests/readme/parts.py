"""Tables that are generated from the code: tools, commands, clients, errors, exit codes.

Each is between two marks, `<!-- made: NAME -->` and `<!-- /made -->`. `python -m tests.readme`
writes those of the README, `python -m tests.docs` those of `docs/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from mcp_serve.cli import errors as cli_errors
from mcp_serve.cli.clients.places import CLIENTS
from mcp_serve.cli.main import VERBS
from mcp_serve.registry import SPECS
from session_core import errors

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"

_PART = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- /made -->)", re.DOTALL)

_MEANS = {
    "failed": "refused or failed; the message says why",
    "usage": "the command line is wrong",
    "unknown_id": "there is no such session, batch, plan, profile or home",
    "busy": "somebody else is at work, or was first; try again",
    "declined": "nobody said yes, and nothing was changed",
    "partial": "not all of it yet; the same call goes on",
    "interrupted": "Ctrl-C; what was done is whole",
}
"""What an exit code means, where its name does not say it."""

_USAGE = 2
"""The exit code of argparse."""


def written(page: str, makers: Mapping[str, Callable[[], str]] | None = None) -> str:
    """Return a page, by default the README, with its parts as they are made now."""
    by_name = makers or MADE
    return _PART.sub(lambda found: f"{found[1]}{by_name[found[2]]()}\n{found[3]}", page)


def names(readme: str) -> set[str]:
    """Return which parts it has."""
    return {found[2] for found in _PART.finditer(readme)}


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return rows as a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _tools() -> str:
    return table(
        ("tool", "does"),
        (
            (f"`{spec.name}`{' *' if spec.changes else ''}", first_sentence(spec.description))
            for spec in SPECS
        ),
    )


def _commands() -> str:
    return table(
        ("`mcp-sessions`", "does"), ((f"`{name}`", does) for name, (_, does) in VERBS.items())
    )


def _clients() -> str:
    return table(
        ("client", "`mcp-sessions install`", "with `--project` in"),
        (
            (each.label, f"`{each.name}`", f"`{each.project}`" if each.project else "")
            for each in CLIENTS
        ),
    )


def _exits() -> str:
    known = {
        value: name.lower()
        for name, value in vars(cli_errors).items()
        if name.isupper() and isinstance(value, int)
    }
    rows = sorted((known | {_USAGE: "usage"}).items())
    return table(
        ("exit", "means"),
        ((str(code), _MEANS.get(name, name.replace("_", " "))) for code, name in rows),
    )


def _errors() -> str:
    kinds = [each for each in vars(errors).values() if _is_error(each)]
    return table(
        ("error", "is a", "means"),
        (
            (
                f"`{kind.__name__}`",
                ", ".join(f"`{base.__name__}`" for base in kind.__bases__),
                first_sentence(kind.__doc__ or ""),
            )
            for kind in kinds
        ),
    )


def _is_error(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, errors.SessionError)


def first_sentence(text: str) -> str:
    """Return the first sentence of a text in one line."""
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]


MADE: dict[str, Callable[[], str]] = {
    "tools": _tools,
    "commands": _commands,
    "clients": _clients,
    "exits": _exits,
    "errors": _errors,
}
