"""Tables that are generated from the code: tools, commands, clients, errors, exit codes.

Each is between two marks, `<!-- made: NAME -->` and `<!-- /made -->`. `python -m tests.readme`
writes those of the README, `python -m tests.docs` those of `docs/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from mcp_serve.cli import command_errors as cli_errors
from mcp_serve.cli.clients.supported_clients import CLIENTS
from mcp_serve.cli.main import VERBS
from mcp_serve.tool_list import load_specs
from session_core import errors

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"

STRICT = "import warnings\nwarnings.simplefilter('error')\n"
"""The beginning of an example that fails at a warning."""

_PART_PATTERN = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- /made -->)", re.DOTALL)

_EXIT_MEANINGS = {
    "failed": "refused or failed; the message gives the reason",
    "usage": "the command line is wrong",
    "unknown_id": "unknown session, batch, plan, store or home",
    "busy": "busy, or changed by another process; try again",
    "declined": "not confirmed; nothing was changed",
    "partial": "done in part; the same command continues",
    "interrupted": "interrupted by Ctrl-C; completed steps are kept",
}
"""Descriptions of the exit codes."""

_USAGE_PATTERN = 2
"""The exit code of argparse."""


def render_page(page: str, makers: Mapping[str, Callable[[], str]] | None = None) -> str:
    """Return a page with its generated parts replaced. The README by default."""
    by_name = makers or PART_MAKERS
    return _PART_PATTERN.sub(lambda found: f"{found[1]}{by_name[found[2]]()}\n{found[3]}", page)


def list_part_names(readme: str) -> set[str]:
    """Return the names of the generated parts of a page."""
    return {found[2] for found in _PART_PATTERN.finditer(readme)}


def format_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return rows as a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _format_tools() -> str:
    return format_table(
        ("tool", "does"),
        (
            (
                f"`{spec.name}`{' *' if spec.changes else ''}",
                extract_first_sentence(spec.description),
            )
            for spec in load_specs()
        ),
    )


def _format_commands() -> str:
    return format_table(
        ("`mcp-sessions`", "does"), ((f"`{name}`", does) for name, (_, does) in VERBS.items())
    )


def _format_clients() -> str:
    return format_table(
        ("client", "`mcp-sessions install`", "with `--project` in"),
        (
            (item.label, f"`{item.name}`", f"`{item.project}`" if item.project else "")
            for item in CLIENTS
        ),
    )


def _format_exit_codes() -> str:
    known = {
        value: name.lower()
        for name, value in vars(cli_errors).items()
        if name.isupper() and isinstance(value, int)
    }
    rows = sorted((known | {_USAGE_PATTERN: "usage"}).items())
    return format_table(
        ("exit", "means"),
        ((str(code), _EXIT_MEANINGS.get(name, name.replace("_", " "))) for code, name in rows),
    )


def _format_errors() -> str:
    kinds = [each for each in vars(errors).values() if _is_error_class(each)]
    return format_table(
        ("error", "is a", "means"),
        (
            (
                f"`{kind.__name__}`",
                ", ".join(f"`{base.__name__}`" for base in kind.__bases__),
                extract_first_sentence(kind.__doc__ or ""),
            )
            for kind in kinds
        ),
    )


def _is_error_class(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, errors.SessionError)


def extract_first_sentence(text: str) -> str:
    """Return the first sentence of a text in one line."""
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]


PART_MAKERS: dict[str, Callable[[], str]] = {
    "tools": _format_tools,
    "commands": _format_commands,
    "clients": _format_clients,
    "exits": _format_exit_codes,
    "errors": _format_errors,
}
