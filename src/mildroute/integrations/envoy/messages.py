"""The parts of Envoy's ``ext_proc`` protocol that a decision needs.

Fields have their numbers from ``envoy/service/ext_proc/v3/external_processor.proto``; protobuf
skips all others. The xds-protos package has the whole protocol, but overwrites files of
opentelemetry-proto and googleapis-common-protos, which the ``otel`` extra needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mildroute._optional import needs_extra

with needs_extra("protobuf", extra="envoy", user="mildroute.integrations.envoy"):
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2

__all__ = [
    "ProcessingRequest",
    "ProcessingResponse",
    "continue_reply",
    "open_reply",
    "routed_reply",
]

_PACKAGE = "mildroute.ext_proc"
_STRUCT = "google.protobuf.Struct"
# Number, name and type of each field; a plus sign marks a repeated field.
_MESSAGES = {
    "HeaderValue": ((1, "key", "string"), (2, "value", "string"), (3, "raw_value", "bytes")),
    "HeaderMap": ((1, "headers", "+HeaderValue"),),
    "HttpHeaders": ((1, "headers", "HeaderMap"), (3, "end_of_stream", "bool")),
    "HttpBody": ((1, "body", "bytes"), (2, "end_of_stream", "bool")),
    "HttpTrailers": (),
    "Attributes": ((1, "filter", "string"), (2, "values", _STRUCT)),
    "ProcessingRequest": (
        (2, "request_headers", "HttpHeaders"),
        (3, "response_headers", "HttpHeaders"),
        (4, "request_body", "HttpBody"),
        (5, "response_body", "HttpBody"),
        (6, "request_trailers", "HttpTrailers"),
        (7, "response_trailers", "HttpTrailers"),
        (9, "attributes", "+Attributes"),
    ),
    "HeaderValueOption": ((1, "header", "HeaderValue"), (3, "append_action", "int32")),
    "HeaderMutation": (
        (1, "set_headers", "+HeaderValueOption"),
        (2, "remove_headers", "+string"),
    ),
    "BodyMutation": ((1, "body", "bytes"),),
    "CommonResponse": (
        (2, "header_mutation", "HeaderMutation"),
        (3, "body_mutation", "BodyMutation"),
        (5, "clear_route_cache", "bool"),
    ),
    # Replies to headers and to bodies have the same shape.
    "PartResponse": ((1, "response", "CommonResponse"),),
    "ProcessingResponse": (
        (1, "request_headers", "PartResponse"),
        (2, "response_headers", "PartResponse"),
        (3, "request_body", "PartResponse"),
        (4, "response_body", "PartResponse"),
        (5, "request_trailers", "HttpTrailers"),
        (6, "response_trailers", "HttpTrailers"),
        (8, "dynamic_metadata", _STRUCT),
    ),
}
# OVERWRITE_IF_EXISTS_OR_ADD
_OVERWRITE = 2
_SCALARS = {"string": 9, "bytes": 12, "bool": 8, "int32": 5}
_MESSAGE_TYPE = 11


def _message_classes() -> dict[str, Any]:
    """Return a class for each message."""
    file = descriptor_pb2.FileDescriptorProto(
        name="mildroute/ext_proc.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=[struct_pb2.DESCRIPTOR.name],
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field_name, kind in fields:
            type_name = kind.removeprefix("+")
            full_name = type_name if "." in type_name else f"{_PACKAGE}.{type_name}"
            is_scalar = type_name in _SCALARS
            message.field.add(
                name=field_name,
                number=number,
                label=3 if type_name != kind else 1,
                type=_SCALARS.get(type_name, _MESSAGE_TYPE),
                type_name=None if is_scalar else f".{full_name}",
            )
    # A separate pool, because the process may also have loaded Envoy's own messages.
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


_CLASSES = _message_classes()
ProcessingRequest: Any = _CLASSES["ProcessingRequest"]
ProcessingResponse: Any = _CLASSES["ProcessingResponse"]


def _continue(part: str) -> bytes:
    reply = ProcessingResponse()
    getattr(reply, part).SetInParent()
    return bytes(reply.SerializeToString())


_CONTINUE = {
    part: _continue(part)
    for _, part, _ in _MESSAGES["ProcessingResponse"]
    if part != "dynamic_metadata"
}


def continue_reply(part: str) -> bytes:
    """Return a reply that changes nothing.

    Args:
        part: Name of the request's field, such as ``"response_body"``.
    """
    return _CONTINUE[part]


def open_reply(metadata: Mapping[str, Any]) -> bytes:
    """Return a reply that leaves the body unchanged, with metadata that explains why."""
    reply = ProcessingResponse()
    reply.request_body.SetInParent()
    _set_metadata(reply, metadata)
    return bytes(reply.SerializeToString())


def routed_reply(
    body: bytes,
    headers: Mapping[str, str],
    removed_headers: tuple[str, ...],
    metadata: Mapping[str, Any],
) -> bytes:
    """Return a reply that changes the body and makes Envoy select the route again.

    Args:
        body: The new body.
        headers: Headers to set.
        removed_headers: Names of headers to remove.
        metadata: The request's dynamic metadata, in the namespace ``mildroute``.
    """
    reply = ProcessingResponse()
    response = reply.request_body.response
    response.clear_route_cache = True
    response.body_mutation.body = body
    mutation = response.header_mutation
    mutation.remove_headers.extend(removed_headers)
    for name, value in {**headers, "content-length": str(len(body))}.items():
        option = mutation.set_headers.add(append_action=_OVERWRITE)
        option.header.key = name
        option.header.raw_value = value.encode()
    _set_metadata(reply, metadata)
    return bytes(reply.SerializeToString())


def _set_metadata(reply: Any, metadata: Mapping[str, Any]) -> None:
    fields = reply.dynamic_metadata.fields["mildroute"].struct_value.fields
    for name, value in metadata.items():
        if isinstance(value, str):
            fields[name].string_value = value
        else:
            fields[name].number_value = value
