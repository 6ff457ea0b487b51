"""Errors on their way to a client: the one place that cleans them, whoever has raised them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.types import INTERNAL_ERROR, ErrorData
from pydantic import ValidationError

Next = Callable[[ServerRequestContext[Any, Any]], Awaitable[Any]]

_LOG = logging.getLogger(__name__)
_DEFECT = "the request failed, which is a defect of this server; its log on stderr says more"


async def clean_failures(ctx: ServerRequestContext[Any, Any], call_next: Next) -> Any:
    """Answer a request; what its error repeats has no secret and no terminal escape.

    Raises:
        MCPError: the request failed.
    """
    try:
        answer = await call_next(ctx)
    except MCPError as error:
        raise MCPError.from_error_data(_cleaned(error.error, ctx.params)) from error
    except ValidationError:  # the SDK answers it without a word of it
        raise
    except Exception as error:
        if ctx.request_id is None:
            raise
        _LOG.exception("%s failed", ctx.method)
        raise MCPError(INTERNAL_ERROR, _DEFECT) from error
    if isinstance(answer, dict) and answer.get("isError"):
        return answer | {"content": [_clean_part(part, ctx.params) for part in answer["content"]]}
    return answer


def _cleaned(error: ErrorData, passed: Any) -> ErrorData:
    from mcp_serve.outgoing import clean, clean_value  # noqa: PLC0415 -- only where one fails

    data = clean_value(error.data, passed)
    return ErrorData(code=error.code, message=clean(error.message, passed), data=data)


def _clean_part(part: Any, passed: Any) -> Any:
    from mcp_serve.outgoing import clean_value  # noqa: PLC0415 -- only where one fails

    return clean_value(part, passed)
