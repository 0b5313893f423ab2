"""Encoders that are ready before the first row: by a name that needs no data, or fitted, from a stored router."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mildroute.encoders.hashing import HashingEncoder
from mildroute.encoders.named import encoder_named
from mildroute.encoders.sentence import SentenceEncoder
from mildroute.encoders.union import UnionEncoder
from mildroute.errors import ArgumentError
from mildroute.routers.artifact import load_router

__all__ = ["encoder_of", "encoder_without_data"]


def encoder_without_data(name: str) -> Any:
    """An encoder by its short name, fitted; only those that learn nothing from the rows.

    An encoder that learns would have to see all rows first, and what it learnt would be lost with it: a router that is trained on its
    vectors could never be asked about a text.

    Args:
        name: As for :func:`mildroute.encoders.named.encoder_named`.

    Returns:
        The fitted encoder.

    Example:
        >>> encoder_without_data("tfidf")
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: an encoder must need no fitting, got 'tfidf', which learns from data; fit a router with it first ...
    """
    encoder = encoder_named(name)
    if not _learns_nothing(encoder):
        way_out = "fit a router with it first and take the fitted one (--encoder-of router), or take minilm"
        raise ArgumentError(f"an encoder must need no fitting, got {name!r}, which learns from data; {way_out}.")
    return encoder.fit(["a text"])


def encoder_of(folder: str | Path) -> Any:
    """The fitted encoder of a stored router.

    Args:
        folder: What ``mildroute fit`` or :func:`mildroute.routers.artifact.save` wrote.

    Returns:
        The encoder.

    Example:
        >>> encoder_of("no/such/router")
        Traceback (most recent call last):
        mildroute.errors.ArtifactError: no/such/router must be a folder with a readable router.json, got: No such file or directory.
    """
    router = load_router(folder)
    encoder = getattr(router, "encoder_", None)
    if encoder is None:
        raise ArgumentError(f"{str(folder)!r} must hold a router with an encoder, got a {type(router).__name__} without; take another one.")
    return encoder


def _learns_nothing(encoder: Any) -> bool:
    if isinstance(encoder, UnionEncoder):
        return all(map(_learns_nothing, encoder.encoders))
    return isinstance(encoder, SentenceEncoder | HashingEncoder)
