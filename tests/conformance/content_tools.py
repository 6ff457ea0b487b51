"""Fixtures of the suite: tools, resources and prompts with contents of each kind."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.types import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
"""One example of each keyword of JSON Schema 2020-12 that must reach a client."""


def register_contents(server: MCPServer[Any]) -> None:
    """Register them."""
    for tool in (
        test_simple_text,
        test_image_content,
        test_audio_content,
        test_embedded_resource,
        test_multiple_content_types,
        test_error_handling,
    ):
        server.add_tool(tool, description="Of the suite.", structured_output=False)
    server.add_tool(_about, "json_schema_2020_12_tool", description="Of the suite.")
    server._tool_manager._tools["json_schema_2020_12_tool"].parameters = SCHEMA
    server.resource("test://static-text", mime_type="text/plain")(_text)
    server.resource("test://static-binary", mime_type="image/png")(_make_picture)
    server.resource("test://watched-resource", mime_type="text/plain")(_watched)
    server.resource("test://template/{id}/data", mime_type="application/json")(_of_template)
    for prompt in (
        test_simple_prompt,
        test_prompt_with_arguments,
        test_prompt_with_embedded_resource,
        test_prompt_with_image,
    ):
        server.prompt(description="Of the suite.")(prompt)


def test_simple_text() -> str:
    return "This is a simple text response for testing."


def test_image_content() -> list[ImageContent]:
    return [_image()]


def test_audio_content() -> list[AudioContent]:
    rate, none = 8000, 0
    body = b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, rate, rate, 1, 8)
    body += b"data" + struct.pack("<I", none)
    wave = b"RIFF" + struct.pack("<I", len(body)) + body
    return [AudioContent(type="audio", data=_in_text(wave), mime_type="audio/wav")]


def test_embedded_resource() -> list[EmbeddedResource]:
    return [
        _embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ]


def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
    data = json.dumps({"test": "data", "value": 123})
    return [
        TextContent(type="text", text="Multiple content types test:"),
        _image(),
        _embedded("test://mixed-content-resource", "application/json", data),
    ]


def test_error_handling() -> str:
    raise ToolError("This tool intentionally returns an error for testing")


def _about(name: str = "") -> str:
    return name


def _text() -> str:
    return "This is the content of the static text resource."


def _watched() -> str:
    return "Nobody has changed it."


def _of_template(id: str) -> str:  # noqa: A002 -- named by the suite
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


def test_simple_prompt() -> list[UserMessage]:
    return [UserMessage("This is a simple prompt for testing.")]


def test_prompt_with_arguments(arg1: str, arg2: str) -> list[UserMessage]:
    return [UserMessage(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")]


def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803
    text = "Embedded resource content for testing."
    return [
        UserMessage(_embedded(resourceUri, "text/plain", text)),
        UserMessage("Please process the embedded resource above."),
    ]


def test_prompt_with_image() -> list[UserMessage]:
    return [UserMessage(_image()), UserMessage("Please analyze the image above.")]


def _image() -> ImageContent:
    return ImageContent(type="image", data=_in_text(_make_picture()), mime_type="image/png")


def _embedded(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    inner = TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return EmbeddedResource(type="resource", resource=inner)


def _make_picture() -> bytes:
    """Return an image of one red pixel."""
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\x00\xff\x00\x00")),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )


def _in_text(data: bytes) -> str:
    return base64.b64encode(data).decode()
