"""The tools of the server, asked by a person: the same arguments, answers and errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from mcp_serve import plans
from mcp_serve.cli import missing_home
from mcp_serve.cli.errors import DONE, translate_arguments
from mcp_serve.cli.options import choose_driver
from mcp_serve.cli.output import page_output, print_json
from mcp_serve.cli.progress import TerminalProgress
from mcp_serve.cli.terminal import TableColumn, Terminal
from mcp_serve.dispatch import resolve_arguments
from mcp_serve.errors import explain_error
from mcp_serve.homes import ServedHome
from mcp_serve.profiles import ServedProfiles, ServerOptions
from mcp_serve.tools.spec import ToolSpec
from session_core import InvalidInput

if TYPE_CHECKING:
    from typing_extensions import Self

_PAGE_SIZE = 100
"""What every list answers at once."""

Answer = dict[str, Any]


class ToolCaller:
    """What is served, to be asked, and where it `changes` to be changed.

    It may be `new`, and not there yet, where something comes in or is waited for.

    Raises:
        InvalidInput: a change of several homes at once; a plan is of one.
        NotFound: a home was named, and there is none.
    """

    def __init__(
        self, options: argparse.Namespace, *, changes: bool = False, new: bool = False
    ) -> None:
        if changes and (options.all_profiles or len(set(options.profile)) > 1):
            raise InvalidInput("a change covers one home; name it with one --profile")
        choose_driver()
        self._served = ServedProfiles(
            ServerOptions(
                home=options.home,
                profiles=options.profile,
                all_profiles=options.all_profiles,
                read_only=not changes,
                trash=getattr(options, "trash", None),
                load_extension=getattr(options, "load_extension", False),
            )
        )
        if not new:
            missing_home.require_home(self._served)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._served.close()

    @property
    def served(self) -> ServedProfiles:
        """What is asked."""
        return self._served

    @property
    def home(self) -> ServedHome:
        """The home, or that of the first profile."""
        return self._served.get_home()

    def call_tool(self, spec: ToolSpec, given: Answer, *work: TerminalProgress) -> Answer:
        """Ask a tool of the home, or of the first profile; one that changes something has work.

        Raises:
            InvalidInput: it takes no such arguments.
        """
        read = self.validate_arguments(spec, given)
        chosen = {name: getattr(read, name) for name in read.model_fields_set}
        with _translate_argument_errors(spec):
            arguments, asked = resolve_arguments(spec, chosen, self._served)
        answer: Answer = spec.run(self._served.get_home(arguments.profile), arguments, asked, *work)
        return answer

    def validate_arguments(self, spec: ToolSpec, given: Answer) -> Any:
        """Validate the arguments of a tool.

        Raises:
            InvalidInput: it takes no such arguments, or not beside a plan.
        """
        with _translate_argument_errors(spec):
            read = spec.arguments.read(given)
            plans.check_plan_alone(read, spec.allowed_with_plan)
        return read

    def collect_pages(
        self, spec: ToolSpec, given: Answer, key: str, limit: int, cursor: str | None = None
    ) -> Answer:
        """Ask a list of every profile, page by page, for so many entries of each at most.

        A cursor is of one of them, and goes on there.
        """
        if cursor is not None:
            return self._collect_profile_pages(spec, given | {"cursor": cursor}, key, limit)
        found: Answer = {}
        for profile in self._served.names:
            some = self._collect_profile_pages(spec, given | {"profile": profile}, key, limit)
            found = some | {key: found.get(key, []) + some[key]}
        several = len(self._served.names) > 1  # a cursor is of one of them
        return found | ({"next_cursor": None} if several else {})

    def _collect_profile_pages(self, spec: ToolSpec, given: Answer, key: str, limit: int) -> Answer:
        found = self.call_tool(spec, given | {"limit": min(limit, _PAGE_SIZE)})
        while len(found[key]) < limit and found["next_cursor"] is not None:
            rest = min(limit - len(found[key]), _PAGE_SIZE)
            more = self.call_tool(spec, {"cursor": found["next_cursor"], "limit": rest})
            found = more | {key: found[key] + more[key]}
        return found


@contextmanager
def _translate_argument_errors(spec: ToolSpec) -> Iterator[None]:
    """Let what is wrong with the arguments of a tool be said of what was typed for them."""
    try:
        yield
    except (ValidationError, InvalidInput) as error:
        wrong = explain_error(error) if isinstance(error, ValidationError) else str(error)
        raise InvalidInput(translate_arguments(wrong or "", spec.arguments.model_fields)) from error


def show_answer(
    options: argparse.Namespace,
    ask: Callable[[ToolCaller], Answer],
    show: Callable[[Answer], None],
) -> int:
    """Ask, and show what is answered to whom it is for."""
    with ToolCaller(options) as tools:
        found = ask(tools)
        missing = missing_home.format_missing_note(tools.served)
    if options.json:
        print_json(found)
    elif missing is not None:
        get_terminal().write_line(missing)
    else:
        with page_output(off=getattr(options, "no_pager", True)):
            show(found)
    return DONE


def show_list(
    columns: Sequence[TableColumn], entries: Sequence[Answer], row: Callable[[Answer], list[str]]
) -> None:
    """Show what a list has found, with the profiles where there are several."""
    several = any("profile" in each for each in entries)
    rows = [[each["profile"], *row(each)] if several else row(each) for each in entries]
    get_terminal().write_table(
        [TableColumn("profile", copied=True), *columns] if several else columns, rows
    )


def get_terminal() -> Terminal:
    """Return where a person reads."""
    return Terminal(sys.stdout)
