"""Makes protobuf message classes from a table of fields, without generated code."""

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {name: _Field.Type.Value(f"TYPE_{name.upper()}") for name in ("bytes", "double", "float", "int64", "string")}
_LABELS = {"optional": _Field.LABEL_OPTIONAL, "repeated": _Field.LABEL_REPEATED}


def message_classes(package: str, messages: Mapping[str, Mapping[int, str]]) -> Mapping[str, type[Any]]:
    """Make a protobuf class for each message, with field presence and packed repeated numbers.

    Args:
        package: protobuf package of the messages.
        messages: for each message its fields by number, declared as in a ``.proto`` file.

    Example:
        >>> classes = message_classes("example", {"Point": {1: "repeated float at", 2: "optional string name"}})
        >>> classes["Point"](at=[1], name="a").SerializeToString().hex(" ")
        '0a 04 00 00 80 3f 12 01 61'
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package)
    for message, fields in messages.items():
        described = file.message_type.add(name=message)
        for number, words in fields.items():
            label, kind, name = words.split()
            field = described.field.add(name=name, number=number, label=_LABELS[label])
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{package}.{kind}"
            if label == "repeated" and kind in {"double", "float", "int64"}:
                field.options.packed = True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{message}"))
        for message in messages
    }
