"""The hooks of session boundaries: specifications, registration and calls."""

from session_core.hooks.dispatch import Hooks
from session_core.hooks.registry import hookimpl
from session_core.hooks.specs import GROUP, BoundaryReport, HookFault, HookReport, SessionHooks

__all__ = [
    "GROUP",
    "BoundaryReport",
    "HookFault",
    "HookReport",
    "Hooks",
    "SessionHooks",
    "hookimpl",
]
