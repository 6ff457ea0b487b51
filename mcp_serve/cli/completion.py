"""`mcp-sessions completion`: a script with which a shell completes the command.

It is made of the parsers of all verbs, so that it knows what they know, and runs nothing of ours
when somebody presses the key.
"""

from __future__ import annotations

import argparse
import sys

from mcp_serve.cli.codes import DONE

EXAMPLES = """\
Verbs, options, their values, files and folders are completed. Ids and sources are
not, in any of these shells: nothing of ours is started when the key is pressed.

examples:
  eval "$(mcp-sessions completion bash)"                 in this shell alone
  mcp-sessions completion bash >> ~/.bashrc              in each that starts
  mcp-sessions completion zsh > ~/.zfunc/_mcp-sessions   a folder of your fpath
  mcp-sessions completion fish > ~/.config/fish/completions/mcp-sessions.fish
"""

_FILES = ("FILE",)
_FOLDERS = ("FOLDER", "DIR")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")


def run(options: argparse.Namespace) -> int:
    """Print it."""
    import shtab  # noqa: PLC0415 -- no other verb needs it

    from mcp_serve.cli.main import VERBS, parser_of  # noqa: PLC0415 -- it imports this module

    parser = parser_of(list(VERBS))
    for action in _actions(parser):
        named = (action.metavar or "").upper() if isinstance(action.metavar, str) else ""
        if action.dest == "home" or named in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif named in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    sys.stdout.write(shtab.complete(parser, options.shell))
    return DONE


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return what a parser and the parsers of its verbs take."""
    found = []
    for action in parser._actions:  # noqa: SLF001 -- argparse has no other way to ask
        found.append(action)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 -- as above
            for verb in action.choices.values():
                found += _actions(verb)
    return found
