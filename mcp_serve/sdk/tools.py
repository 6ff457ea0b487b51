"""Tools and results of the SDK, with our own argument models and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.resolve import build_resolver_plans, find_resolved_parameters
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp.types import CallToolResult, InputRequiredResult, TextContent
from pydantic import Field

from mcp_serve.answer_size import render_json
from mcp_serve.arguments import ToolArguments

Explain = Callable[[BaseException, Sequence[str]], str | None]
Run = Callable[..., Awaitable[Any]]

_UNANSWERED_MESSAGE = (
    "the client did not answer the confirmation question, and nothing was changed; call again "
    "with the same plan, or start the server with --confirm=never if the client cannot ask"
)


class StrictTool(Tool):
    """A tool whose errors are explained by us."""

    explain: Explain = Field(exclude=True)

    async def run(
        self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False
    ) -> Any:
        """Run the tool.

        Raises:
            ToolError: the tool failed; the message is for the model.
        """
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as error:
            cause = error.__cause__ or error
            message = self._explain_cause(cause)
            if message is None:
                raise UnexpectedToolError(
                    f"{self.name} failed because of a defect of this server; see its log on stderr"
                ) from cause
            raise ToolError(message) from cause

    def _explain_cause(self, cause: BaseException) -> str | None:
        if isinstance(cause, ToolError):  # ours raise none: the SDK rejects an answer to a question
            return _UNANSWERED_MESSAGE
        return self.explain(cause, tuple(self.fn_metadata.arg_model.model_fields))


def make_strict_tool(
    run: Run,
    *,
    name: str,
    arguments: type[ToolArguments],
    explain: Explain,
    check: Callable[[Any], None],
) -> Tool:
    """Return a tool of the SDK.

    `run` takes the context, and the arguments by name. `check` raises for arguments that do not go
    together, before the user is asked.
    """
    resolved = find_resolved_parameters(run)
    return StrictTool(
        fn=run,
        name=name,
        title=None,
        description="",  # clients are shown the listed tool
        parameters={},
        fn_metadata=ToolMetadata(arg_model=arguments, check=check),
        is_async=True,
        context_kwarg="context",
        resolved_params=dict(resolved),
        resolver_plans=build_resolver_plans(resolved, set(arguments.model_fields)),
        annotations=None,
        explain=explain,
    )


class ToolMetadata(FuncMetadata):
    """Validates arguments with the model alone, and makes results that only tests validate."""

    arg_model: Any
    check: Callable[[Any], None] = Field(exclude=True)

    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        """Return the given arguments for the function, and None for the other arguments."""
        model: type[ToolArguments] = self.arg_model
        validated = model.read(arguments_to_validate)
        self.check(validated)
        return {
            name: value
            for name, value in dict(validated).items()
            if name in validated.model_fields_set or value is None
        }

    def convert_result(self, result: Any) -> CallToolResult | InputRequiredResult:
        """Return the result of an answer.

        Its text and its structured content hold the same data. A question to the user is a result
        already.
        """
        if isinstance(result, InputRequiredResult):
            return result
        # Some hosts show their model the text, others the structured content.
        text = TextContent(type="text", text=render_json(result))
        return CallToolResult(content=[text], structured_content=result)
