"""A tool of ours: its arguments are validated, and its errors put into words, by us."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.resolve import build_resolver_plans, find_resolved_parameters
from mcp.server.mcpserver.tools import Tool
from mcp.types import ToolAnnotations
from pydantic import Field, TypeAdapter

from mcp_serve.sdk.arguments import Arguments, Metadata
from mcp_serve.sdk.schemas import slim

Explain = Callable[[BaseException, Sequence[str]], str | None]
Run = Callable[..., Awaitable[Any]]


class Strict(Tool):
    """A tool whose errors are put into words by us."""

    explain: Explain = Field(exclude=True)

    async def run(
        self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False
    ) -> Any:
        """Run the tool.

        Raises:
            ToolError: in the words that the model is to read.
        """
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as error:
            cause = error.__cause__ or error
            said = self.explain(cause, tuple(self.fn_metadata.arg_model.model_fields))
            if said is None:
                raise UnexpectedToolError(
                    f"{self.name} failed, which is a defect of this server; "
                    "its log on stderr says more"
                ) from cause
            raise ToolError(said) from cause


def strict_tool(
    run: Run,
    *,
    name: str,
    title: str,
    description: str,
    arguments: type[Arguments],
    answers: Any,
    annotations: ToolAnnotations,
    explain: Explain,
    check: Callable[[Any], None],
) -> Tool:
    """Return a tool of ours; `run` takes the context, and the arguments by name.

    `check` raises for arguments that do not go together, before anybody is asked.
    """
    asked = find_resolved_parameters(run)
    return Strict(
        fn=run,
        name=name,
        title=title,
        description=description,
        parameters=arguments.schema_of_input(),
        fn_metadata=Metadata(
            arg_model=arguments,
            output_schema=slim(TypeAdapter(answers).json_schema()),
            check=check,
        ),
        is_async=True,
        context_kwarg="context",
        resolved_params=dict(asked),
        resolver_plans=build_resolver_plans(asked, set(arguments.model_fields)),
        annotations=annotations,
        explain=explain,
    )
