"""The arguments of a tool as a model, and how they are validated."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from pydantic import ConfigDict, Field, model_validator

from mcp_serve.sdk.schemas import slim


class Arguments(ArgModelBase):
    """The arguments of a tool: unknown ones are an error, and null is what was not given.

    Each is of its type alone; a number without a fraction is a whole one, as JSON has it.
    """

    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)

    required: ClassVar[tuple[str, ...]] = ()
    """What a call without a cursor has to give; a cursor carries it."""

    @model_validator(mode="after")
    def _all_there(self) -> Arguments:
        for name in self.required:
            if getattr(self, name) is None and getattr(self, "cursor", None) is None:
                raise ValueError(f"{name} is required")
        return self

    @classmethod
    def schema_of_input(cls) -> dict[str, Any]:
        """Return the JSON schema that is listed."""
        schema: dict[str, Any] = slim(cls.model_json_schema(by_alias=True), given=True)
        schema.pop("description", None)
        return schema | ({"required": list(cls.required)} if cls.required else {})

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Any:
        """Validate what a client sent."""
        return cls.model_validate(
            {
                name: _parsed(value) if name in cls._lists() else _whole(value)
                for name, value in given.items()
                if value is not None
            }
        )

    @classmethod
    @cache
    def _lists(cls) -> frozenset[str]:
        fields = cls.model_fields.items()
        return frozenset(name for name, field in fields if "list" in str(field.annotation))


class Metadata(FuncMetadata):
    """Validates by `Arguments` alone; results are validated by the tests."""

    check: Callable[[Any], None] = Field(exclude=True)

    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as the function takes them: those that were given, and nulls."""
        model: Any = self.arg_model
        read = model.read(arguments_to_validate)
        self.check(read)
        return {
            name: value
            for name, value in read.model_dump_one_level().items()
            if name in read.model_fields_set or value is None
        }


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _parsed(value: Any) -> Any:
    """Return a list that was sent as its JSON, which some hosts do."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return [value] if isinstance(value, str) else value
