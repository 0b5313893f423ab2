"""Calls between the tests and the code under test, which run in two processes.

Only values cross, as JSON from which either end builds its own. So the tests compare what the code
returned with what they expect in a process that the code cannot reach, and the code never sees what
they expect. This file runs inside the sandbox and imports nothing but the standard library.
"""

from __future__ import annotations

import collections
import copy
import datetime
import decimal
import fractions
import functools
import importlib
import json
import operator
import pickle
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, BinaryIO

_MAX_PRINTED = 1 << 20
_SELF_JUDGED = (
    "the tests leave their verdict to {} of a class of the answer, applied to a plain value;"
    " compare attributes or texts"
)
_BINARY = (
    "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift",
    "and", "or", "xor",
)  # fmt: skip
_ORDER = ("eq", "ne", "lt", "le", "gt", "ge")
_DECIDING = frozenset({f"__{name}__" for name in (*_BINARY, *_ORDER)}) | {
    f"__r{name}__" for name in _BINARY
}
_COMPARING = frozenset(f"__{name}__" for name in _ORDER)
_NUMBERS = frozenset({"__abs__", "__bool__", "__float__", "__index__", "__int__", "__round__"})


def _swapped(name: str, one: Any, other: Any) -> Any:
    return getattr(operator, name)(other, one)


OPERATORS: dict[str, Callable[..., Any]] = {
    **{f"__{name}__": getattr(operator, f"__{name}__") for name in (*_BINARY, *_ORDER)},
    **{f"__r{name}__": functools.partial(_swapped, f"__{name}__") for name in _BINARY},
    **{
        f"__{name}__": getattr(operator, f"__{name}__")
        for name in ("neg", "pos", "invert", "getitem", "setitem", "delitem", "contains", "index")
    },
    "__abs__": abs, "__bool__": bool, "__float__": float, "__format__": format, "__hash__": hash,
    "__int__": int, "__iter__": iter, "__len__": len, "__next__": next, "__repr__": repr,
    "__reversed__": reversed, "__round__": round, "__str__": str,
    "__copy__": copy.copy, "__deepcopy__": lambda value, _memo: copy.deepcopy(value),
    "__enter__": lambda value: type(value).__enter__(value),
    "__exit__": lambda value, *error: type(value).__exit__(value, *error),
    "__instancecheck__": lambda cls, value: isinstance(value, cls),
    "__subclasscheck__": lambda cls, other: issubclass(other, cls),
}  # fmt: skip
# Types beyond those of JSON that cross by value: how to take one apart, and how to build it.
_VALUES: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    tuple: (list, tuple),
    set: (list, set),
    frozenset: (list, frozenset),
    dict: (lambda value: [list(pair) for pair in value.items()], dict),
    collections.OrderedDict: (
        lambda value: list(map(list, value.items())),
        collections.OrderedDict,
    ),
    collections.Counter: (
        lambda value: list(map(list, value.items())),
        lambda pairs: collections.Counter(dict(pairs)),
    ),
    collections.defaultdict: (
        lambda value: list(map(list, value.items())),
        lambda pairs: collections.defaultdict(None, pairs),
    ),
    collections.deque: (
        lambda value: [list(value), value.maxlen],
        lambda of: collections.deque(*of),
    ),
    bytes: (lambda value: value.decode("latin-1"), lambda text: text.encode("latin-1")),
    bytearray: (lambda value: value.decode("latin-1"), lambda text: bytearray(text, "latin-1")),
    complex: (lambda value: [value.real, value.imag], lambda of: complex(*of)),
    range: (lambda value: [value.start, value.stop, value.step], lambda of: range(*of)),
    slice: (lambda value: [value.start, value.stop, value.step], lambda of: slice(*of)),
    fractions.Fraction: (str, fractions.Fraction),
    decimal.Decimal: (str, decimal.Decimal),
    datetime.datetime: (str, datetime.datetime.fromisoformat),
    datetime.date: (str, datetime.date.fromisoformat),
    datetime.time: (str, datetime.time.fromisoformat),
    datetime.timedelta: (
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda of: datetime.timedelta(*of),
    ),
}
_BUILDERS = {kind.__name__: build for kind, (_, build) in _VALUES.items()}
_CHANGING = (list, dict, set, bytearray, collections.deque)
_BASES: tuple[Any, ...] = (int, float, str, bytes, bytearray, tuple, list, dict, set, frozenset)


class PeerEnded(BaseException):
    """The other process ended; no ``except Exception`` of the tests holds this up."""


class UnsupportedTests(BaseException):
    """The tests do what cannot be judged from another process: a fault of theirs."""


class Peer:
    """One end of the conversation: asks the other end, and serves it meanwhile.

    Args:
        reading: Where the other end's messages arrive.
        writing: Where messages to it go.
        serve: What this end does when asked: operation to function.
        trusting: Whether any global name of the other end is looked up here, and whether values go
            there pickled: the code trusts the tests, and never the other way round.
    """

    def __init__(
        self,
        reading: BinaryIO,
        writing: BinaryIO,
        serve: dict[str, Callable[..., Any]],
        *,
        trusting: bool,
    ) -> None:
        self._reading = reading
        self._writing = writing
        self._served = serve
        self.trusting = trusting
        self._own: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._error_classes: dict[int, type[BaseException]] = {}
        self._thread = threading.get_ident()
        # set for good when the conversation fails: tests may catch every error
        self.fault: BaseException | None = None
        self.printed: list[str] = []
        # classes of the other end that were looked up here by name
        self.named: set[int] = set()

    def ask(self, operation: str, *values: Any) -> Any:
        """Have the other end do something and return the value."""
        if threading.get_ident() != self._thread:
            raise RuntimeError("the code can call what its tests gave it in its main thread only")
        self._send({"do": operation, "with": [self.encode(value) for value in values]})
        while "do" in (message := self._receive()):
            self._send(self._answer(message))
        return self._result(operation, values, message)

    def _result(self, operation: str, values: tuple[Any, ...], message: dict[str, Any]) -> Any:
        """What a reply says; one that says nothing ends the conversation."""
        if "error" not in message and "value" not in message:
            raise self.fail(PeerEnded())
        sys.stdout.write(str(message.get("printed", "")))
        for old, new in zip(values, message.get("changed", ()), strict=False):
            if isinstance(old, _CHANGING):
                _update(old, self.decode(new))
        if "error" in message:
            raise self._error(message["error"])
        value = self.decode(message["value"], name=operation == "name")
        if operation == "name" and type(value) is Remote:
            self.named.add(_number(value))
        return value

    def serve(self) -> None:
        """Do what the other end asks for until it ends."""
        while True:
            self._send(self._answer(self._receive()))

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._writing.write(json.dumps(message).encode() + b"\n")
            self._writing.flush()
        except OSError as closed:
            raise self.fail(PeerEnded()) from closed

    def _receive(self) -> dict[str, Any]:
        try:
            message: dict[str, Any] = json.loads(self._reading.readline() or b"null")
        except (ValueError, OSError, RecursionError) as broken:
            raise self.fail(PeerEnded()) from broken
        if not isinstance(message, dict):
            raise self.fail(PeerEnded())
        return message

    def fail(self, fault: BaseException) -> BaseException:
        """Record why there is nothing more to judge."""
        self.fault = self.fault or fault
        return fault

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        reply: dict[str, Any] = {}
        try:
            values = [self.decode(value) for value in message["with"]]
            reply["value"] = self.encode(self._served[message["do"]](*values))
            changed = [
                self.encode(value) if isinstance(value, _CHANGING) else sent
                for value, sent in zip(values, message["with"], strict=True)
            ]
            if changed != message["with"]:
                reply["changed"] = changed
        except (PeerEnded, UnsupportedTests):
            raise
        except BaseException as error:  # noqa: BLE001 - exits and interrupts cross as well
            reply["error"] = self._encode_error(error)
        reply["printed"] = "".join(self.printed)[:_MAX_PRINTED]
        self.printed.clear()
        return reply

    def encode(self, value: Any) -> Any:
        """A value as JSON: by value where its type is known, else as a number it is known by."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind is list:
            return [self.encode(part) for part in value]
        if kind in _VALUES:
            return {"is": kind.__name__, "of": self.encode(_VALUES[kind][0](value))}
        if kind is Remote and _peer(value) is self:
            return {"is": "yours", "of": _number(value)}
        if isinstance(value, BaseException):
            return {"is": "error", "of": self._encode_error(value)}
        if isinstance(value, type) or kind in (types.FunctionType, types.BuiltinFunctionType):
            return self._encode_global(value)
        return self._encode_object(value, kind)

    def _encode_global(self, value: Any) -> Any:
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        if module in sys.stdlib_module_names and _global(module, name) is value:
            return {"is": "global", "of": [module, name]}
        if isinstance(value, type) and issubclass(value, BaseException):
            return {"is": "error class", "of": self._encode_error_class(value)}
        return self._handle(value)

    def _encode_object(self, value: Any, kind: type) -> Any:
        if isinstance(value, types.ModuleType) and value.__name__ in sys.stdlib_module_names:
            return {"is": "module", "of": value.__name__}
        if kind.__module__ == "numpy" and getattr(value, "dtype", None) is not None:
            if value.dtype.kind in "biufcUS":
                values = self.encode(value.tolist())
                return {"is": "array", "of": [value.dtype.str, values, kind.__name__]}
        elif isinstance(value, tuple) and hasattr(kind, "_fields"):
            values = self.encode(list(value))
            return {"is": "namedtuple", "of": [kind.__name__, values, list(kind._fields)]}
        for base in _BASES:
            if isinstance(value, base):
                plain = base.__new__(base, value) if base in (int, float, str) else base(value)
                return self.encode(plain)
        return self._handle(value)

    def _handle(self, value: Any) -> Any:
        if not self.trusting and _is_foreign(value):
            try:
                return {"is": "pickle", "of": pickle.dumps(value).decode("latin-1")}
            except Exception:  # noqa: BLE001, S110 - whatever a class raises: then it stays here
                pass
        number = self._numbers.setdefault(id(value), len(self._own))
        if number == len(self._own):
            self._own.append(value)
        return {"is": "mine", "of": number, "awaited": isinstance(value, types.CoroutineType)}

    def decode(self, value: Any, *, name: bool = False) -> Any:
        """What the other end meant; ``name`` if it is what a global name stands for."""
        if isinstance(value, list):
            return [self.decode(part) for part in value]
        if not isinstance(value, dict):
            return value
        kind, inside = value["is"], value["of"]
        if kind in _BUILDERS:
            return _BUILDERS[kind](self.decode(inside))
        if kind == "yours":
            return self._own[inside]
        if kind == "mine":
            remote = Remote(self, inside)
            return self._awaited(remote) if value["awaited"] else remote
        return self._decode_other(kind, inside, name=name)

    def _decode_other(self, kind: str, inside: Any, *, name: bool) -> Any:
        if kind == "error":
            return self._error(inside)
        if kind == "error class":
            return self._error_class(inside)
        if kind in ("array", "namedtuple"):
            return _made(kind, inside[0], inside[2], self.decode(inside[1]))
        if kind == "module" and inside in sys.stdlib_module_names:
            return importlib.import_module(inside)
        if kind == "global":
            found = _global(*inside)
            if self.trusting or name or isinstance(found, type):
                return found
        if kind == "pickle" and self.trusting:
            # Only the code's process, inside its sandbox, trusts what the tests send.
            return pickle.loads(inside.encode("latin-1"))  # noqa: S301  # nosec B301
        raise TypeError(f"a value of kind {kind!r:.20} does not cross from the code to its tests")

    async def _awaited(self, remote: Remote) -> Any:
        return self.ask("await", remote)

    def _encode_error(self, error: BaseException) -> Any:
        try:
            arguments, text = self.encode(list(error.args)), str(error)
        except Exception:  # noqa: BLE001 - an error of the code whose own words are broken
            arguments, text = [], ""
        return [self._encode_error_class(type(error)), arguments, text[:2000], self._handle(error)]

    def _encode_error_class(self, kind: type) -> Any:
        """Names of its own classes by number, up to the first one that both ends know."""
        chain: list[Any] = []
        for cls in kind.__mro__:
            if cls.__module__ in sys.stdlib_module_names and cls.__module__ != "unittest.case":
                return [chain, [cls.__module__, cls.__qualname__]]
            chain.append([self._handle(cls)["of"], cls.__name__])
        return [chain, ["builtins", "BaseException"]]

    def _error_class(self, encoded: Any) -> type[BaseException]:
        chain, known = encoded
        cls: Any = _global(*known)
        # SkipTest is no verdict that the code may give
        if not (isinstance(cls, type) and issubclass(cls, BaseException)) or known[0] == "unittest":
            cls = Exception
        for number, name in reversed(chain):
            if number not in self._error_classes:
                self._error_classes[number] = type(str(name), (cls,), {"__str__": _text_of})
            cls = self._error_classes[number]
        found: type[BaseException] = cls
        return found

    def _error(self, encoded: Any) -> BaseException:
        kind, arguments, text, handle = encoded
        if handle["is"] == "yours":
            own: BaseException = self._own[handle["of"]]
            return own
        cls = self._error_class(kind)
        values = self.decode(arguments)
        error: BaseException = cls.__new__(cls, *values)
        error.args = tuple(values)
        error.__dict__["_text"] = text
        return error


class Remote:
    """An object of the other process: whatever is done to it is done there."""

    def __init__(self, peer: Peer, number: int) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_from_plain", False)

    def __getattr__(self, name: str) -> Any:
        """Its attribute."""
        return _peer(self).ask("attribute", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set its attribute."""
        _peer(self).ask("set attribute", self, name, value)

    def __call__(self, *values: Any, **named: Any) -> Any:
        """Call it; lists and the like that it changes are changed here as well."""
        return _peer(self).ask("call", self, list(named), *values, *named.values())

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """No class of these tests can inherit from one of the code."""
        message = "the tests inherit from a class of the answer, which only its process has"
        raise _peer(self).fail(UnsupportedTests(message))


def _peer(remote: Remote) -> Peer:
    peer: Peer = object.__getattribute__(remote, "_peer")
    return peer


def _number(remote: Remote) -> int:
    number: int = object.__getattribute__(remote, "_number")
    return number


def _forward(name: str) -> Callable[..., Any]:
    def operate(self: Remote, *values: Any) -> Any:
        peer = _peer(self)
        if peer.trusting or any(type(value) is Remote for value in values):
            return peer.ask("operator", name, self, *values)
        if name in _DECIDING:
            return _decide(peer, name, self, values[0])
        if name in _NUMBERS and object.__getattribute__(self, "_from_plain"):
            raise peer.fail(UnsupportedTests(_SELF_JUDGED.format(name)))
        return peer.ask("operator", name, self, *values)

    return operate


def _decide(peer: Peer, name: str, remote: Remote, value: Any) -> Any:
    """An operator between an object of the code and a plain value of the tests.

    A class whose objects equal everything, or for which ``a - expected`` is 0, would pass all
    tests: the code must not decide here. An object of a class that the tests do not name is unequal
    to every plain value. For one that they name there is no verdict, except that ``Vector(1, 2) *
    3`` may be another object, which is no number either.
    """
    numbers, overrides = peer.ask("operator", "__class__", remote, name)
    if not overrides or not any(number in numbers for number in peer.named):
        return NotImplemented
    made = None if name in _COMPARING else peer.ask("operator", name, remote, value)
    if type(made) is not Remote:
        raise peer.fail(UnsupportedTests(_SELF_JUDGED.format(name)))
    object.__setattr__(made, "_from_plain", True)
    return made


for _name in OPERATORS:
    setattr(Remote, _name, _forward(_name))


def _global(module: str, name: str) -> Any:
    """What a name of the standard library stands for; none if it stands for nothing."""
    if module not in sys.stdlib_module_names:
        return None
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found


def classes_of(peer: Peer, value: Any, name: str) -> list[Any]:
    """Numbers of an object's classes, and whether one of them defines an operator itself."""
    kind = type(value)
    numbers = [peer.encode(cls)["of"] for cls in kind.__mro__]
    own = getattr(kind, name, None)
    return [numbers, own is not None and own is not getattr(object, name, None)]


def _made(kind: str, name: str, form: Any, values: Any) -> Any:
    """An array of numpy, given its dtype and the name of its class, or a named tuple."""
    if kind == "namedtuple":
        make: Any = collections.namedtuple
        return make(name, form, rename=True)(*values)
    array = importlib.import_module("numpy").array(values, dtype=name)
    return array if form == "ndarray" else array[()]


def _is_foreign(value: Any) -> bool:
    """Whether it is of a class of some library, which the other end can import as well."""
    return type(value).__module__ not in ("tests", "builtins", "__main__")


def _text_of(error: BaseException) -> str:
    text: str = error.__dict__.get("_text", "")
    return text


def _update(old: Any, new: Any) -> None:
    """Make a list or the like equal to what the other end made of its copy."""
    if type(old) is not type(new):
        return
    if isinstance(old, (list, collections.deque)):
        kept = [_merged(one, other) for one, other in zip(old, new, strict=False)]
        old.clear()
        old.extend([*kept, *list(new)[len(kept) :]])
    elif isinstance(old, dict):
        merged = {key: _merged(old.get(key), value) for key, value in new.items()}
        old.clear()
        old.update(merged)
    else:
        old.clear()
        old.update(new) if isinstance(old, set) else old.extend(new)


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, _CHANGING) and type(old) is type(new):
        _update(old, new)
        return old
    return new
