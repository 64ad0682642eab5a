"""What the models of the spec share: strictness, names, rules of whole objects, and the type of a number."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from tickkeeper.api.rules import BROKEN_RULE, Rule, check_object, with_validations


class SpecModel(BaseModel):
    """An object of the spec: strict types (``"100"`` and ``true`` are no integers), camelCase names in the resource.

    Fields that this version does not know are ignored: a newer CRD may have let them in.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        frozen=True,
        extra="ignore",
        strict=True,
    )

    #: Rules of the object as a whole.
    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        """null means absent, as it does to the API server (no field of the CRD is nullable)."""
        if isinstance(value, Mapping):
            return {name: field for name, field in value.items() if field is not None}
        return value

    @model_validator(mode="after")
    def _keeps_rules(self) -> Self:
        check_object(self, self.rules)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(schema)
        definition = handler.resolve_ref_schema(reference)
        definition.update(with_validations(definition, cls.rules))
        return reference


class UniqueItems:
    """A list without duplicates: the API server merges it as a set (``x-kubernetes-list-type``)."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(_without_duplicates, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "x-kubernetes-list-type": "set"}


def _without_duplicates(items: Sequence[Hashable]) -> Sequence[Hashable]:
    seen: set[Hashable] = set()
    for item in items:
        if item in seen:
            raise PydanticCustomError(BROKEN_RULE, "{rule}", {"rule": "must not be listed twice", "value": item})
        seen.add(item)
    return items


def _whole(value: Any) -> Any:
    """``100.0`` is an integer to Kubernetes: JSON has but one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: Goes last into ``Annotated[int, …]``: bounds before it stay bounds of the integer.
WHOLE_NUMBER = BeforeValidator(_whole)
