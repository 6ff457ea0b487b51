"""Tools that ask the user: within a call for older clients, in rounds for newer ones."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver import Context, Elicit, ElicitationResult, MCPServer, Resolve, Sample
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel, Field

Round = dict[str, InputRequest]


class Person(BaseModel):
    """The form for the user."""

    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


class Defaults(BaseModel):
    """A default of each kind."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: str = Field("active", json_schema_extra={"enum": ["active", "inactive", "pending"]})
    verified: bool = True


_NAMES = ("option1", "option2", "option3")
_TITLED = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]


class Choices(BaseModel):
    """A choice of each kind."""

    untitled: str = Field(alias="untitledSingle", json_schema_extra={"enum": [*_NAMES]})
    titled: str = Field(alias="titledSingle", json_schema_extra={"oneOf": [*_TITLED]})
    legacy: str = Field(
        alias="legacyEnum",
        json_schema_extra={"enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    )
    some_untitled: list[str] = Field(
        alias="untitledMulti", json_schema_extra={"items": {"type": "string", "enum": [*_NAMES]}}
    )
    some_titled: list[str] = Field(
        alias="titledMulti", json_schema_extra={"items": {"anyOf": [*_TITLED]}}
    )


def _of_person(message: str) -> Elicit[Person]:
    return Elicit(message, Person)


def _of_defaults() -> Elicit[Defaults]:
    return Elicit("Please provide user information", Defaults)


def _of_choices() -> Elicit[Choices]:
    return Elicit("Please choose", Choices)


def _of_model(prompt: str) -> Sample:
    return Sample(messages=[_message(prompt)], max_tokens=100)


async def test_elicitation(
    message: str, arguments: Annotated[ElicitationResult[Person], Resolve(_of_person)]
) -> str:
    return f"User response: {arguments.model_dump_json()}"


async def test_elicitation_sep1034_defaults(
    arguments: Annotated[ElicitationResult[Defaults], Resolve(_of_defaults)],
) -> str:
    return f"Elicitation completed: {arguments.model_dump_json()}"


async def test_elicitation_sep1330_enums(
    arguments: Annotated[ElicitationResult[Choices], Resolve(_of_choices)],
) -> str:
    return f"Elicitation completed: {arguments.model_dump_json()}"


async def test_streaming_elicitation(
    arguments: Annotated[ElicitationResult[Defaults], Resolve(_of_defaults)],
) -> str:
    return f"Elicitation completed: {arguments.model_dump_json()}"


async def test_sampling(
    prompt: str, arguments: Annotated[CreateMessageResult, Resolve(_of_model)]
) -> str:
    return f"LLM response: {arguments.content.text}"


async def test_input_required_result_capabilities(context: Context) -> str | InputRequiredResult:
    declared = context.client_capabilities
    request: Round = {}
    if declared is not None and declared.sampling is not None:
        request["greeting"] = _sampled("Generate a greeting")
    if declared is not None and declared.elicitation is not None:
        request["name"] = _form("What is your name?", name="string")
    return _next(context, request)


async def test_input_required_result_prompt(
    context: Context,
) -> list[UserMessage] | InputRequiredResult:
    request = _next(context, {"user_context": _form("What context is it?", context="string")})
    return request if isinstance(request, InputRequiredResult) else [UserMessage(request)]


def _form(message: str, **properties: str) -> ElicitRequest:
    schema = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def _sampled(prompt: str) -> CreateMessageRequest:
    params = CreateMessageRequestParams(messages=[_message(prompt)], max_tokens=100)
    return CreateMessageRequest(params=params)


def _message(text: str) -> SamplingMessage:
    return SamplingMessage(role="user", content=TextContent(type="text", text=text))


_NAME = {"user_name": _form("What is your name?", name="string")}
_OK = {"confirm": _form("Please confirm", ok="boolean")}
_ROOTS: Round = {"client_roots": ListRootsRequest()}

_ROUNDS: dict[str, tuple[Round, ...]] = {
    "elicitation": (_NAME,),
    "sampling": ({"capital_question": _sampled("What is the capital of France?")},),
    "list_roots": (_ROOTS,),
    "request_state": (_OK,),
    "tampered_state": (_OK,),
    "multiple_inputs": (_NAME | {"greeting": _sampled("Generate a greeting")} | _ROOTS,),
    "multi_round": (
        {"step1": _form("Step 1: What is your name?", name="string")},
        {"step2": _form("Step 2: What is your favorite color?", color="string")},
    ),
}
"""The questions of each tool, by round."""


def _next(context: Context, *rounds: Round) -> str | InputRequiredResult:
    """Return the next round of questions. The state is the number of the previous one."""
    number = int(context.request_state or 0)
    if rounds[number].keys() <= (context.input_responses or {}).keys():
        number += 1
    if number == len(rounds):
        return "state-ok"
    return InputRequiredResult(input_requests=rounds[number], request_state=str(number))


def _in_rounds(rounds: tuple[Round, ...]) -> Any:
    async def ask(context: Context) -> str | InputRequiredResult:
        return _next(context, *rounds)

    return ask


def register_elicitation(server: MCPServer[Any]) -> None:
    """Register them."""
    for tool in (
        test_elicitation,
        test_elicitation_sep1034_defaults,
        test_elicitation_sep1330_enums,
        test_streaming_elicitation,
        test_sampling,
        test_input_required_result_capabilities,
    ):
        server.add_tool(tool, description="Of the suite.")
    for name, rounds in _ROUNDS.items():
        tool = f"test_input_required_result_{name}"
        server.add_tool(_in_rounds(rounds), tool, description="Of the suite.")
    server.prompt(description="Of the suite.")(test_input_required_result_prompt)
