"""The codec of Lance's API: its bodies are those of Lance's own models, which are there if it is installed.

Routes name a model instead of holding it. So a server starts without the second that it takes to load them
all, and one without Lance still says what it is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import InvalidRequest, UnsupportedFeature
from penstock.formats.lance.lake.lance_requirement import INSTALL, is_installed
from penstock.model import decoders
from penstock.model.decoders import get_json_decoder

if TYPE_CHECKING:
    from pydantic import BaseModel

Json = dict[str, Any]

MISSING: Final = (
    "this server was installed without Lance, so it cannot serve Lance tables; its administrator can "
    f"install it: {INSTALL}"
)

READ_HERE_MAX_BYTES: Final = 16 * 1024
"""Of a body that the server reads itself: in milliseconds, and a few megabytes at most."""

_encoder = msgspec.json.Encoder()
_decoder = get_json_decoder(dict[str, Any])


class RequestModel(msgspec.Struct, frozen=True):
    """One of Lance's models, by its name."""

    name: str


class UnparsedModel(RequestModel, frozen=True):
    """One of Lance's models that is not read where it arrives, but by a row worker."""


class RowsBody(msgspec.Struct, frozen=True):
    """Rows in one of Arrow's IPC formats."""


ROWS: Final = RowsBody()


class LanceCodec:
    """Reads bodies as plain objects, which handlers then make models of, together with path and query.

    A body that is left as bytes is read by a row worker: rows, and what is larger than a server can afford to
    read. A plain object takes 20 times the memory of its JSON, and what Lance's models say of one that is
    wrong takes 500 times.
    """

    def decode(self, data: bytes, type: Any, /) -> Any:  # noqa: A002
        is_left = type is ROWS or isinstance(type, UnparsedModel) or len(data) > READ_HERE_MAX_BYTES
        return data if is_left else read_object(data)

    def convert(self, values: Mapping[str, Any], type: Any, /) -> Any:  # noqa: A002
        try:
            return decoders.convert_value(values, type, strict=False)
        except msgspec.ValidationError as problem:
            raise InvalidRequest(f"the request's parameters cannot be read: {problem}") from None

    def encode(self, value: Any, type: Any, /) -> bytes:  # noqa: A002, ARG002
        return _encoder.encode(to_plain_json(value))

    def schema(self, types: Sequence[Any], /) -> tuple[Sequence[Json], Json]:
        models = {kind.name for kind in types if isinstance(kind, RequestModel)}
        shapes = [kind for kind in types if not isinstance(kind, RequestModel | RowsBody)]
        of_shapes, components = msgspec.json.schema_components(
            shapes, ref_template="#/components/schemas/{name}"
        )
        of_models, more = _make_model_schemas(models)
        of_shapes_left = iter(of_shapes)
        schemas: list[Json] = []
        for kind in types:
            if isinstance(kind, RequestModel):
                schemas.append(of_models[kind.name])
            elif isinstance(kind, RowsBody):
                schemas.append({"type": "string", "contentMediaType": "application/vnd.apache.arrow.stream"})
            else:
                schemas.append(next(of_shapes_left))
        return schemas, {**components, **more}


CODEC: Final = LanceCodec()


def read_object(data: bytes) -> Json:
    """A JSON object; ``InvalidRequest`` if it is none."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise InvalidRequest(f"the request's body is not a JSON object: {problem}") from None


def find_model(name: str) -> type[BaseModel]:
    """One of Lance's models; ``UnsupportedFeature`` if Lance is not installed."""
    model_type: type[BaseModel] = getattr(_load_models(), name)
    return model_type


@cache
def _load_models() -> ModuleType:
    if not is_installed():
        raise UnsupportedFeature(MISSING, feature="lance")
    import lance_namespace_urllib3_client.models as models

    return models


def to_plain_json(value: Any) -> Any:
    """An answer as JSON has it: fields under the names that they have there, and none without a value."""
    if hasattr(value, "model_dump"):
        try:
            return value.model_dump(mode="json", by_alias=True, exclude_none=True)
        except TypeError:  # what only looks like a model
            return value.model_dump()
    return value


def _make_model_schemas(names: set[str]) -> tuple[dict[str, Json], Json]:
    """The schema of each model, and the components that they refer to."""
    try:
        kinds = {name: find_model(name) for name in sorted(names)}
    except UnsupportedFeature:
        return {name: {"type": "object"} for name in names}, {}
    from pydantic.json_schema import models_json_schema

    template = "#/components/schemas/{model}"
    of_kinds, defined = models_json_schema(
        [(kind, "validation") for kind in kinds.values()], by_alias=True, ref_template=template
    )
    return {name: of_kinds[kind, "validation"] for name, kind in kinds.items()}, defined.get("$defs", {})
