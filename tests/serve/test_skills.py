"""Skills over MCP: entries, files and folders, and the calls that their texts name."""

from __future__ import annotations

import ast
import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp import MCPError
from mcp.types import Request
from pydantic import TypeAdapter

from mcp_serve.features import skills
from mcp_serve.tool_list import load_specs

pytestmark = pytest.mark.anyio

FOLDER = Path(skills.__file__).parents[1] / "plugin" / "skills"
TEXTS = sorted(FOLDER.rglob("*.md"))
CALLS = {spec.name: set(spec.arguments.model_fields) for spec in load_specs()}
KEYS = {name for spec in load_specs() for name in spec.answers.__annotations__} | {
    *("free_in_file", "returned_to_disk", "session_id", "message_id", "resume"),
}
"""The names of answers that a text may mention by themselves."""


@pytest.fixture(name="ask")
def _ask(client):
    """Send a request of the extension and return its result."""

    async def ask(method, **params):
        request = Request[dict[str, Any], str](method=method, params=params)
        return await client.session.send_request(request, TypeAdapter(dict[str, Any]))

    return ask


async def read_text(client, uri):
    (content,) = (await client.read_resource(uri)).contents
    assert content.mime_type == "text/markdown"
    return content.text


@pytest.mark.requirement("faces:skills")
async def test_listed_skills_match_their_files(ask, client):
    entries = (await ask("skills/list"))["skills"]
    assert [entry["frontmatter"]["name"] for entry in entries] == ["recall", "tidy"]
    for entry in entries:
        text = await read_text(client, entry["uri"])
        assert yaml.safe_load(text.split("---")[1]) == entry["frontmatter"]
        assert (await ask("skills/get", uri=entry["uri"]))["skill"] == entry


@pytest.mark.requirement("faces:skills")
async def test_digests_cover_every_file(ask, client):
    entries = (await ask("skills/list"))["skills"]
    files = {file["uri"]: file for entry in entries for file in entry["resources"]}
    assert {uri.removeprefix("skill://") for uri in files} == {
        path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()
    }
    for uri, file in files.items():
        data = (await read_text(client, uri)).encode()
        assert file["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
        assert file["size"] == len(data)


@pytest.mark.requirement("faces:skills")
async def test_manifests_are_listed_resources(client):
    listed = {resource.uri: resource for resource in (await client.list_resources()).resources}
    manifest = listed["skill://recall/SKILL.md"]
    assert manifest.name == "recall"
    assert manifest.description.startswith("Finds what was said")


@pytest.mark.requirement("faces:skills")
async def test_folders_list_direct_children(ask):
    root = (await ask("resources/directory/read", uri="skill://recall"))["resources"]
    assert [(child["name"], child["mimeType"]) for child in root] == [
        ("recall", "text/markdown"),
        ("references", "inode/directory"),
    ]
    inner = (await ask("resources/directory/read", uri=root[1]["uri"]))["resources"]
    assert [child["uri"] for child in inner] == ["skill://recall/references/queries.md"]


@pytest.mark.requirement("faces:refusals")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("skills/get", {"uri": "skill://recall"}),
        ("skills/get", {"uri": "skill://other/SKILL.md"}),
        ("skills/get", {}),
        ("skills/list", {"cursor": "x"}),
        ("resources/directory/read", {"uri": "skill://recall/SKILL.md"}),
        ("resources/directory/read", {"uri": "skill://recall/../tidy"}),
    ],
)
async def test_invalid_skill_request_is_refused(ask, method, params):
    with pytest.raises(MCPError) as caught:
        await ask(method, **params)
    assert caught.value.error.code == -32602


@pytest.mark.requirement("faces:skills")
@pytest.mark.options(read_only=True)
async def test_read_only_server_offers_no_tidy(ask, client):
    entries = (await ask("skills/list"))["skills"]
    assert [entry["frontmatter"]["name"] for entry in entries] == ["recall"]
    listed = [resource.uri for resource in (await client.list_resources()).resources]
    assert not [uri for uri in listed if uri.startswith("skill://tidy")]


def list_query_forms():
    """Return the arguments of each form in the table of queries. … stands for a session."""
    text = (FOLDER / "recall" / "references" / "queries.md").read_text("utf-8")
    for code in re.findall(r"`(\w+=[^`]+)`", text):
        call = ast.parse(f"form({code.replace('…', repr('s'))})", mode="eval").body
        yield {item.arg: ast.literal_eval(item.value) for item in call.keywords}


@pytest.mark.requirement("faces:skills")
async def test_query_forms_are_accepted(call, db):
    db.append_message("s", "user", "hello", create={"source": "cli"})
    forms = list(list_query_forms())
    assert len(forms) > 15
    for form in forms:
        answer = await call("sessions_search", **{"query": "hello"} | form)
        assert answer.keys() >= {"hits", "matched"}


def list_calls(text):
    """Yield the tools and arguments of the calls in a text."""
    for name, inside in re.findall(r"`([a-z]+_[a-z]+)\(([^)`]*)\)`", text):
        yield name, re.findall(r"(\w+)=", inside)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_skill_names_existing_calls(path):
    text = path.read_text("utf-8")
    for name, arguments in list_calls(text):
        assert set(arguments) <= CALLS[name], name
    every = set.union(*CALLS.values())
    for code in re.findall(r"`([^`]+)`", text):
        if re.fullmatch(r"\w+=.*", code):
            assert set(re.findall(r"(\w+)=", code)) <= every, code
        elif re.fullmatch(r"[a-z]+_[a-z_]+", code):
            assert code in CALLS.keys() | every | KEYS, code


@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("*/SKILL.md")), ids=lambda path: path.parent.name
)
def test_skill_is_short_and_linked(path):
    text = path.read_text("utf-8")
    frontmatter = yaml.safe_load(text.split("---")[1])
    assert frontmatter.keys() == {"name", "description"}
    assert frontmatter["name"] == path.parent.name
    assert len(frontmatter["description"]) < 500
    assert len(text) < 4_000
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (path.parent / link).is_file(), link
