"""Calls of the server's tools from the command line: same arguments, answers and errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from mcp_serve.arguments import refuse_arguments_with_plan
from mcp_serve.cli import missing_home
from mcp_serve.cli.command_errors import DONE, translate_arguments, translate_tool_text
from mcp_serve.cli.options import choose_driver
from mcp_serve.cli.output import escape_answer, page_output, print_json
from mcp_serve.cli.progress_bar import ProgressBar, TerminalProgress
from mcp_serve.cli.terminal import TableColumn, Terminal
from mcp_serve.error_messages import explain_error
from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.stores import ServedStores, ServerOptions
from mcp_serve.tool_dispatcher import bind_call
from mcp_serve.tools.spec import ToolSpec
from session_core import InvalidInput

if TYPE_CHECKING:
    from typing_extensions import Self

_PAGE_SIZE = 100
"""Entries that a list tool returns in one call."""

Answer = dict[str, Any]


class ToolCaller:
    """The served homes and calls of tools on them.

    Homes are read-only unless `changes` is True. A change needs a home unless it also takes
    transcripts (`needs_home`). With `new` the home may be missing, for an import or for `watch`.
    Without `transcripts`, sessions of other agents are left out.

    Raises:
        InvalidInput: A change names several homes; a plan covers one.
        NotFound: The named home does not exist, or there is no store at all.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        *,
        changes: bool = False,
        needs_home: bool = True,
        new: bool = False,
        transcripts: bool = True,
    ) -> None:
        if changes and (options.all_profiles or len(set(options.store)) > 1):
            raise InvalidInput("a change covers one home; name it with one --store")
        choose_driver()
        self._served = ServedStores(
            ServerOptions(
                home=options.home,
                stores=options.store,
                all_profiles=options.all_profiles,
                read_only=not changes,
                finds_transcripts=transcripts,
                trash=getattr(options, "trash", None),
                load_extension=getattr(options, "load_extension", False),
            )
        )
        if changes and needs_home and not self._served.home_names:
            raise InvalidInput(
                f"{', '.join(options.store)} holds transcripts of another agent, which are never "
                "changed; name a home with --store"
            )
        if not new:
            missing_home.require_store(self._served, home=changes and needs_home)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._served.close()

    @property
    def served(self) -> ServedStores:
        """The served homes."""
        return self._served

    @property
    def home(self) -> ServedHome:
        """The home, or the home of the first store."""
        return self._served.get_home()

    def index_transcripts(self) -> None:
        """Index the new parts of the transcripts, so that one answer covers all of them."""
        with ProgressBar("Indexing transcripts") as bar:
            self._served.index_transcripts(bar.report_progress)

    def call_tool(self, spec: ToolSpec, arguments: Answer, *work: TerminalProgress) -> Answer:
        """Call a tool on its home.

        A changing tool also receives the progress.

        Raises:
            InvalidInput: The arguments are not valid.
        """
        read = self.validate_arguments(spec, arguments)
        chosen = {name: getattr(read, name) for name in read.model_fields_set}
        with _translate_argument_errors(spec):
            call = bind_call(spec, chosen, self._served)
        answer: Answer = call(*work)
        return answer

    def validate_arguments(self, spec: ToolSpec, arguments: Answer) -> Any:
        """Validate the arguments of a tool.

        Raises:
            InvalidInput: The arguments are not valid, or not valid together with a plan.
        """
        with _translate_argument_errors(spec):
            read = spec.arguments.read(arguments)
            refuse_arguments_with_plan(read, spec.allowed_with_plan)
        return read

    def collect_pages(
        self, spec: ToolSpec, arguments: Answer, key: str, limit: int, cursor: str | None = None
    ) -> Answer:
        """Return up to `limit` entries of the served stores, fetched page by page.

        A tool that does not merge is asked store by store; its cursor belongs to one of them.
        """
        stores = self._served.home_names
        if spec.merges or "session" in arguments or cursor is not None or len(stores) == 1:
            return self._collect_store_pages(spec, arguments, key, limit, cursor)
        entries: list[Any] = []
        for store in stores:
            answer = self._collect_store_pages(spec, arguments | {"store": store}, key, limit)
            entries += answer[key]
        return answer | {key: entries, "next_cursor": None}

    def _collect_store_pages(
        self, spec: ToolSpec, arguments: Answer, key: str, limit: int, cursor: str | None = None
    ) -> Answer:
        first = arguments | {"limit": min(limit, _PAGE_SIZE)}
        answer = self.call_tool(spec, first | ({} if cursor is None else {"cursor": cursor}))
        while len(answer[key]) < limit and answer["next_cursor"] is not None:
            rest = min(limit - len(answer[key]), _PAGE_SIZE)
            # The cursor carries the other arguments.
            page = self.call_tool(spec, {"cursor": answer["next_cursor"], "limit": rest})
            answer = page | {key: answer[key] + page[key]}
        return answer


@contextmanager
def _translate_argument_errors(spec: ToolSpec) -> Iterator[None]:
    """Raise errors about tool arguments with the names of the options."""
    try:
        yield
    except (ValidationError, InvalidInput) as error:
        reason = explain_error(error) if isinstance(error, ValidationError) else str(error)
        raise InvalidInput(
            translate_arguments(reason or "", spec.arguments.model_fields)
        ) from error


def fetch_and_show_answer(
    options: argparse.Namespace,
    ask: Callable[[ToolCaller], Answer],
    show: Callable[[Answer], None],
) -> int:
    """Fetch an answer, and print it as JSON or show it to a person."""
    with ToolCaller(options) as tools:
        answer = ask(tools)
    if options.json:
        print_json(answer)
    else:
        with page_output(off=getattr(options, "no_pager", True)):
            show(escape_answer(answer))
            if answer.get("note"):
                get_terminal().write_line(translate_tool_text(answer["note"]), "dim")
    return DONE


def show_list(
    columns: Sequence[TableColumn], entries: Sequence[Answer], row: Callable[[Answer], list[str]]
) -> None:
    """Write entries as a table, with a column of stores if their sources do not name the stores."""
    several = any("store" in entry and entry["store"] != entry.get("source") for entry in entries)
    rows = [[entry["store"], *row(entry)] if several else row(entry) for entry in entries]
    get_terminal().write_table(
        [TableColumn("store", copied=True), *columns] if several else columns, rows
    )


def get_terminal() -> Terminal:
    """Return a terminal on standard output."""
    return Terminal(sys.stdout)
