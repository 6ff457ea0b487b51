"""The tools of the server, asked by a person: the same arguments, answers and errors."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from mcp_serve.calls import opened
from mcp_serve.cli.codes import DONE
from mcp_serve.cli.driver import choose_driver
from mcp_serve.cli.terminal import Terminal
from mcp_serve.served import Options, Served
from mcp_serve.tools.spec import Spec
from mcp_serve.wrong import explain
from session_core import InvalidInput

if TYPE_CHECKING:
    from typing_extensions import Self

_PAGE = 100
"""What every list answers at once."""

Answer = dict[str, Any]


class Tools:
    """What is served, to be asked."""

    def __init__(self, options: argparse.Namespace) -> None:
        choose_driver()
        self._served = Served(
            Options(
                home=options.home,
                profiles=options.profile,
                all_profiles=options.all_profiles,
                read_only=True,
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._served.close()

    def ask(self, spec: Spec, given: Answer) -> Answer:
        """Ask a tool of the home, or of the first profile.

        Raises:
            InvalidInput: it takes no such arguments.
        """
        try:
            read = spec.arguments.read(given)
        except ValidationError as error:
            raise InvalidInput(explain(error) or "") from error
        chosen = {name: getattr(read, name) for name in read.model_fields_set}
        arguments, asked = opened(spec, chosen, self._served)
        answer: Answer = spec.run(self._served.home(arguments.profile), arguments, asked)
        return answer

    def gather(self, spec: Spec, given: Answer, key: str, limit: int) -> Answer:
        """Ask a list of every profile, page by page, for so many entries of each at most."""
        found: Answer = {}
        for profile in self._served.names:
            some = self._of_profile(spec, given | {"profile": profile}, key, limit)
            found = some | {key: found.get(key, []) + some[key]}
        several = len(self._served.names) > 1  # a cursor is of one of them
        return found | ({"next_cursor": None} if several else {})

    def _of_profile(self, spec: Spec, given: Answer, key: str, limit: int) -> Answer:
        found = self.ask(spec, given | {"limit": min(limit, _PAGE)})
        while len(found[key]) < limit and found["next_cursor"] is not None:
            rest = min(limit - len(found[key]), _PAGE)
            more = self.ask(spec, {"cursor": found["next_cursor"], "limit": rest})
            found = more | {key: found[key] + more[key]}
        return found


def answer(
    options: argparse.Namespace, ask: Callable[[Tools], Answer], show: Callable[[Answer], None]
) -> int:
    """Ask, and show what is answered to whom it is for."""
    with Tools(options) as tools:
        found = ask(tools)
    if options.json:
        json.dump(found, sys.stdout, ensure_ascii=False, indent=2)
        sys.stdout.write("\n")
    else:
        show(found)
    return DONE


def terminal() -> Terminal:
    """Return where a person reads."""
    return Terminal(sys.stdout)
