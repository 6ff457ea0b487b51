"""The hooks of session boundaries: specifications, registration and calls."""

from session_core.hooks.dispatch import Hooks, RecordBegin
from session_core.hooks.foreign_calls import Reporter
from session_core.hooks.registry import hookimpl
from session_core.hooks.specs import (
    GROUP,
    BoundaryReport,
    HookFault,
    HookFaultKind,
    HookReport,
    SessionHooks,
)

__all__ = [
    "GROUP",
    "BoundaryReport",
    "HookFault",
    "HookFaultKind",
    "HookReport",
    "Hooks",
    "RecordBegin",
    "Reporter",
    "SessionHooks",
    "hookimpl",
]
