"""How a lake lies in a DynamoDB table: its items, and the actions of transactions that change them.

=====================  ==============  ===============================================
partition key          sort key        holds
=====================  ==============  ===============================================
``object/<hex id>``    ``-``           the bytes, their number, when last stored, the
                                       write id if it was stored as a fresh one
``row/<name>``         ``-``           kind, bytes and write id: the row itself
``kind/<kind>``        ``<name>``      nothing: lists a row under its kind
``lake``               ``-``           the schema's version: the table is a lake's
=====================  ==============  ===============================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.model.encoding import ObjectId
from penstock.stores.port import Row, StoredObject

ITEM_MAX_BYTES: Final = 390 * 1024
"""DynamoDB takes 400 KB, names included."""
ITEM_OVERHEAD_BYTES: Final = 300
TRANSACTION_MAX_ACTIONS: Final = 100
TRANSACTION_MAX_BYTES: Final = 3_700_000

KEY_SCHEMA: Final = {"pk": "HASH", "sk": "RANGE"}
OBJECT, ROW, KIND, LAKE = "object/", "row/", "kind/", "lake"
ALONE: Final = "-"
"""The sort key of whatever has a partition of its own."""
LAST: Final = "\U0010ffff"

Item: TypeAlias = dict[str, Any]
"""An item, or a part of a request, in DynamoDB's own notation."""

_IF_ABSENT: Final = {
    "ConditionExpression": "attribute_not_exists(pk)",
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
}


class DynamoAction(NamedTuple):
    """One action of a transaction, and the bytes that it counts for."""

    item: Item
    size: int = ITEM_OVERHEAD_BYTES


def encode_key(partition: str, sort: str = ALONE) -> Item:
    return {"pk": {"S": partition}, "sk": {"S": sort}}


def encode_object_key(object_id: ObjectId) -> str:
    return OBJECT + object_id.hex()


def decode_object_id(pk: str) -> ObjectId:
    return bytes.fromhex(pk.removeprefix(OBJECT))


def put_if_absent(item: Item, size: int = ITEM_OVERHEAD_BYTES) -> DynamoAction:
    return DynamoAction({"Put": {"Item": item, **_IF_ABSENT}}, size)


def store_object(object_id: ObjectId, data: bytes, now_us: int) -> DynamoAction:
    """Store an object if it is absent; one that is there gets a new time."""
    update = {
        "Key": encode_key(encode_object_key(object_id)),
        "UpdateExpression": "SET referenced_us = :now, object_data = if_not_exists(object_data, :data), "
        "object_bytes = if_not_exists(object_bytes, :bytes)",
        "ExpressionAttributeValues": {
            ":now": {"N": str(now_us)},
            ":data": {"B": data},
            ":bytes": {"N": str(len(data))},
        },
    }
    return DynamoAction({"Update": update}, len(data) + ITEM_OVERHEAD_BYTES)


def create_object(object_id: ObjectId, data: bytes | None, now_us: int, write_id: str) -> DynamoAction:
    """Store an object on the condition that it is absent; without bytes, only the condition."""
    if data is None:
        return DynamoAction(
            {"ConditionCheck": {"Key": encode_key(encode_object_key(object_id)), **_IF_ABSENT}}
        )
    item = encode_key(encode_object_key(object_id)) | {
        "referenced_us": {"N": str(now_us)},
        "object_data": {"B": data},
        "object_bytes": {"N": str(len(data))},
        "write_id": {"S": write_id},
    }
    return put_if_absent(item, len(data) + ITEM_OVERHEAD_BYTES)


def delete_object(stored_object: StoredObject) -> DynamoAction:
    """Delete an object on the condition that it was not stored again."""
    delete = {
        "Key": encode_key(encode_object_key(stored_object.id)),
        "ConditionExpression": "referenced_us = :seen",
        "ExpressionAttributeValues": {":seen": {"N": str(stored_object.referenced_us)}},
    }
    return DynamoAction({"Delete": delete}, stored_object.size + ITEM_OVERHEAD_BYTES)


def swap_row(name: str, before: Row | None, after: Row | None, write_id: str) -> list[DynamoAction]:
    """Replace a row on the condition that it is as it was seen, and list it under its kind if that is new."""
    condition: Item = _IF_ABSENT
    if before is not None:
        condition = {
            **_IF_ABSENT,
            "ConditionExpression": "row_kind = :kind AND row_data = :data",
            "ExpressionAttributeValues": {":kind": {"S": before.kind}, ":data": {"B": before.data}},
        }
    size = ITEM_OVERHEAD_BYTES + sum(len(row.data) for row in (before, after) if row is not None)
    row_key = encode_key(ROW + name)
    if after is not None:
        item = {"row_kind": {"S": after.kind}, "row_data": {"B": after.data}, "write_id": {"S": write_id}}
        actions = [DynamoAction({"Put": {"Item": row_key | item, **condition}}, size)]
    else:
        kind = "ConditionCheck" if before is None else "Delete"
        actions = [DynamoAction({kind: {"Key": row_key, **condition}}, size)]
    if before is not None and (after is None or after.kind != before.kind):
        actions.append(DynamoAction({"Delete": {"Key": encode_key(KIND + before.kind, name)}}))
    if after is not None and (before is None or after.kind != before.kind):
        actions.append(DynamoAction({"Put": {"Item": encode_key(KIND + after.kind, name)}}))
    return actions


def group_into_transactions(actions: Iterable[DynamoAction]) -> list[list[DynamoAction]]:
    """The actions, in their order, in as few transactions as can hold them."""
    parts: list[list[DynamoAction]] = []
    room = 0
    for action in actions:
        if not parts or len(parts[-1]) == TRANSACTION_MAX_ACTIONS or room < action.size:
            parts.append([])
            room = TRANSACTION_MAX_BYTES
        parts[-1].append(action)
        room -= action.size
    return parts


def decode_object(item: Item) -> StoredObject:
    return StoredObject(
        decode_object_id(item["pk"]["S"]), int(item["referenced_us"]["N"]), int(item["object_bytes"]["N"])
    )


def decode_row(name: str, item: Mapping[str, Any] | None) -> Row | None:
    return Row(name, item["row_kind"]["S"], item["row_data"]["B"]) if item else None


def get_writer(item: Mapping[str, Any]) -> str | None:
    written: str | None = item.get("write_id", {}).get("S")
    return written
