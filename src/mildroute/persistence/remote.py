"""Routers in object storage: signatures, pointers with a canary, downloads and uploads.

A pointer, a small JSON file, names the digest of an artifact, which lies in a folder of that name
beside it: a new router is a new folder and then a new pointer, and a gateway never sees half of
one.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import math
import posixpath
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from mildroute._files import atomic_write, cache_folder, open_location, without_credentials
from mildroute.exceptions import ArtifactError, MildrouteError, MissingExtraError
from mildroute.persistence.artifact import CARD, MANIFEST, WEIGHTS, read_manifest

__all__ = [
    "Pointer",
    "fetch_artifact",
    "fetch_signature",
    "pointer_or_none",
    "promote_canary",
    "publish_router",
    "read_pointer",
    "read_signature",
    "replace_pointer",
    "roll_back",
    "sign_router",
    "upload_router",
    "verify_signature",
]


# Signatures. The digest of router.json covers all that is loaded: state and names lie in it, and
# numbers, tokenizers and ONNX models in the weights, whose digest it holds. CARD.md is not loaded.


# No signature of this key for another purpose can be taken for one of a router.
_SIGNED_PREFIX = b"mildroute router artifact 1\n"
SIGNATURE = "router.json.sig"
_MAX_SIGNATURE = 1 << 10
_MAX_KEY_FILE = 1 << 16
_public_keys_in = re.compile(b"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.S).findall


def sign_router(folder: str | Path, key: str | Path) -> str:
    """Write the signature of a stored router beside its files.

    Args:
        folder: Of the router.
        key: PEM file of an Ed25519 private key, as ``openssl genpkey -algorithm ed25519`` makes it.

    Returns:
        The digest that was signed.
    """
    folder = Path(folder)
    digest = _stored_digest(folder)
    signature = _sign(digest, Path(key))
    try:
        with atomic_write(folder / SIGNATURE) as beside:
            beside.write_bytes(signature)
    except OSError as error:
        raise ArtifactError(
            f"{folder} must be writable, got: {error.strerror}; sign a copy of it."
        ) from error
    return digest


def read_signature(folder: Path) -> bytes:
    """The signature of a stored router; empty if it has none."""
    try:
        with (folder / SIGNATURE).open("rb") as file:
            return file.read(_MAX_SIGNATURE)
    except OSError:
        return b""


def verify_signature(digest: str, signature: bytes, public_keys: Path) -> None:
    """Refuse an artifact that none of these keys has signed.

    Args:
        digest: Of the artifact, in hexadecimal digits.
        signature: In base64; empty if it has none.
        public_keys: PEM file with one or several Ed25519 public keys.

    Raises:
        ArtifactError: The artifact is unsigned or of another key, or there are no such keys.
        MissingExtraError: The package that verifies is not installed.
    """
    keys = _read_public_keys(public_keys)
    rule = f"a router must be signed by a key of {public_keys.name}"
    way_out = "sign it with mildroute rollout sign or publish --key"
    if not signature.strip():
        raise ArtifactError(f"{rule}, got {digest[:16]}... without {SIGNATURE}; {way_out}.")
    try:
        decoded = base64.b64decode(signature.strip(), validate=True)
    except binascii.Error:
        decoded = b""
    if not any(_is_signed_by(key, decoded, digest) for key in keys):
        raise ArtifactError(
            f"{rule}, got {digest[:16]}... with a signature that fits none of its {len(keys)};"
            f" {way_out}, or add the public key."
        )


def _is_signed_by(key: Any, signature: bytes, digest: str) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, _SIGNED_PREFIX + digest.encode())
    except InvalidSignature:
        return False
    return True


def _sign(digest: str, path: Path) -> bytes:
    ed25519, serialization = _cryptography()
    try:
        key = serialization.load_pem_private_key(_read_pem(path), password=None)
    except (ValueError, TypeError):  # no key, or one with a passphrase
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ArtifactError(
            f"{path.name} must be a PEM file with an Ed25519 private key and no passphrase, got"
            " another content; make one with: openssl genpkey -algorithm ed25519."
        )
    return base64.b64encode(key.sign(_SIGNED_PREFIX + digest.encode())) + b"\n"


def _read_public_keys(path: Path) -> list[Any]:
    ed25519, serialization = _cryptography()
    try:
        keys = [
            serialization.load_pem_public_key(part) for part in _public_keys_in(_read_pem(path))
        ]
    except ValueError:
        keys = []
    if not keys or not all(isinstance(key, ed25519.Ed25519PublicKey) for key in keys):
        raise ArtifactError(
            f"{path.name} must be a PEM file with Ed25519 public keys and nothing else, got another"
            " content; write each with: openssl pkey -in private.pem -pubout."
        )
    return keys


def _read_pem(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_KEY_FILE)
    except OSError as error:
        raise ArtifactError(
            f"{path} must be a readable PEM file, got: {error.strerror}; check the path."
        ) from None


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingExtraError.for_package(
            "cryptography", extra="fleet", user="a signed router"
        ) from None
    return ed25519, serialization


# Pointers.


_MAX_POINTER = 1 << 16
_MAX_HISTORY = 10
_is_digest = re.compile("[0-9a-f]{64}").fullmatch


@dataclass(frozen=True)
class Pointer:
    """Which artifact serves, and which one a share of requests tries.

    Args:
        digest: Of the artifact that serves.
        canary: Digest of the artifact that a share of requests gets, or none.
        share: Of the requests that the canary gets, from 0 to 1.
        history: Digests that served before, the latest first.
    """

    digest: str
    canary: str | None = None
    share: float = 0.0
    history: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As the file has it."""
        canary = {"canary": {"digest": self.canary, "share": self.share}} if self.canary else {}
        history = {"history": list(self.history)} if self.history else {}
        return {"digest": self.digest, **canary, **history}


class PointerNotFoundError(ArtifactError):
    """There is no pointer at a URL."""


def read_pointer(url: str) -> Pointer:
    """The content of a pointer, such as ``{"digest": "9f86d0..."}``.

    Raises:
        ArtifactError: It cannot be read, or is no pointer.
    """
    with _remote(url) as (system, path):
        # A pipe in its place would block its reader for good.
        kind = system.get_file_info(path).type
        if kind == pafs.FileType.NotFound:
            raise PointerNotFoundError(
                f"{without_credentials(url)} cannot be read: there is no such pointer; publish a"
                " router first."
            )
        if kind != pafs.FileType.File:
            raise ArtifactError(
                f"{without_credentials(url)} must be a file, got something else; write the pointer"
                " again."
            )
        with system.open_input_stream(path) as file:
            content = file.read(_MAX_POINTER)
    try:
        return _parse_pointer(json.loads(content))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ArtifactError(
            f'{without_credentials(url)} must be JSON such as {{"digest": "..."}}, with the sha256'
            ' of a router.json, and perhaps "canary": {"digest": "...", "share": 0.1}, got'
            f" {content[:60]!r}; write the pointer again."
        ) from None


def _parse_pointer(document: Any) -> Pointer:
    canary = document.get("canary") if isinstance(document, dict) else None
    share = 0.0 if canary is None else canary["share"]
    pointer = Pointer(
        document["digest"],
        None if canary is None else canary["digest"],
        share,
        tuple(document.get("history", ())),
    )
    digests = (pointer.digest, *pointer.history, *(() if canary is None else (pointer.canary,)))
    if isinstance(share, bool) or not 0 <= share <= 1 or not all(map(_is_digest, digests)):
        raise ValueError
    return pointer


# Downloads.


_MAX_ARTIFACT = 4 << 30
_COPY_BYTES = 1 << 20


def fetch_signature(url: str, digest: str) -> bytes:
    """The signature of an artifact beside a pointer; empty if it has none.

    It is never taken from a cache: the same artifact may have been signed again by another key.
    """
    with _remote(url) as (system, path):
        source = posixpath.join(posixpath.dirname(path), digest, SIGNATURE)
        try:
            with system.open_input_stream(source) as file:
                return bytes(file.read(_MAX_SIGNATURE))
        except FileNotFoundError:
            return b""


def fetch_artifact(url: str, digest: str, cache: Path | None = None) -> Path:
    """Download the artifact of a digest, unless the cache has it.

    Args:
        url: Of the pointer that it lies beside; any that pyarrow or fsspec can read.
        digest: Its name.
        cache: Folder of artifacts by their digests; ``mildroute/routers`` in the user's cache by
            default.

    Returns:
        A folder whose content has the digest.

    Raises:
        ArtifactError: It cannot be read, or has another digest.
    """
    cache = cache_folder("routers") if cache is None else cache
    folder = cache / digest
    with contextlib.suppress(ArtifactError):
        _check_digest(folder, digest)
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = Path(tempfile.mkdtemp(prefix=".", dir=cache))
    except OSError as error:
        raise ArtifactError(
            f"routers of a URL need a cache that can be written, got {cache}: {error.strerror}; set"
            " XDG_CACHE_HOME."
        ) from error
    try:
        for name in (MANIFEST, WEIGHTS):
            _download(url, f"{digest}/{name}", beside / name)
        _check_digest(beside, digest)
        _install(beside, folder, digest)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def _install(downloaded: Path, folder: Path, digest: str) -> None:
    try:
        downloaded.rename(folder)
    except OSError:
        # Another process was faster, and may be reading it; what is damaged is replaced.
        with contextlib.suppress(ArtifactError):
            _check_digest(folder, digest)
            return
        shutil.rmtree(folder, ignore_errors=True)
        downloaded.rename(folder)


def _check_digest(folder: Path, digest: str) -> None:
    if _digest_of(folder) != digest:
        raise ArtifactError(
            f"the artifact must have the digest that its pointer names, {digest[:16]}..., got"
            " another one; upload it again."
        )


def _stored_digest(folder: Path) -> str:
    digest = _digest_of(folder)
    if not digest:
        raise ArtifactError(
            f"{WEIGHTS} in {folder} must be the file that was stored, but its sha256 differs; copy"
            " the artifact again."
        )
    return digest


def _digest_of(folder: Path) -> str:
    """Digest of a stored router; empty if its weights are not those of its manifest."""
    manifest = read_manifest(folder)
    try:
        with (folder / WEIGHTS).open("rb") as file:
            weights = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArtifactError(f"{WEIGHTS} cannot be read: {error.strerror}.") from error
    return str(manifest["sha256"]) if weights == manifest["weights"]["sha256"] else ""


def _download(pointer: str, name: str, target: Path) -> None:
    left = _MAX_ARTIFACT
    with _remote(pointer) as (system, path):
        source = posixpath.join(posixpath.dirname(path), name)
        with system.open_input_stream(source) as file, target.open("wb") as copy:
            while chunk := file.read(_COPY_BYTES):
                left -= len(chunk)
                if left < 0:
                    raise ArtifactError(f"{name} must have at most {_MAX_ARTIFACT:,} bytes.")
                copy.write(chunk)


@contextlib.contextmanager
def _remote(url: str, action: str = "read") -> Iterator[tuple[Any, str]]:
    """The file system of a URL and the path in it; all errors become ArtifactErrors."""
    try:
        yield open_location(url)
    except ArtifactError:
        raise
    except (OSError, ValueError, pa.ArrowException, MildrouteError) as error:
        message = f"{url} cannot be {action}: {' '.join(str(error).split()):.300}"
        raise ArtifactError(
            f"{without_credentials(message)}; check the address and its permissions."
        ) from None


# Uploads.


def publish_router(
    folder: str | Path,
    url: str,
    *,
    key: str | Path | None = None,
    canary: float | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Pointer:
    """Upload a stored router under its digest, read it back, and let a pointer name it.

    Args:
        folder: Of the router.
        url: Of the pointer: a URL that pyarrow or fsspec can write, or a path.
        key: PEM file of the private key that signs it; without one its own signature is uploaded,
            if it has one.
        canary: Share of requests that it gets beside the router that serves, or none if it is to
            serve alone.
        report: Called with a line about each file.

    Returns:
        What the pointer says now.
    """
    old = pointer_or_none(url)
    new = _next_pointer(old, _stored_digest(Path(folder)), canary)
    upload_router(folder, url, key=key, report=report)
    _write_pointer(url, new)
    return new


def upload_router(
    folder: str | Path,
    url: str,
    *,
    key: str | Path | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> str:
    """Upload a stored router beside a pointer, which does not name it yet; its digest.

    The arguments are those of ``publish_router``.
    """
    folder = Path(folder)
    digest = _stored_digest(folder)
    signature = read_signature(folder) if key is None else _sign(digest, Path(key))
    files: dict[str, Path | bytes] = {MANIFEST: folder / MANIFEST, WEIGHTS: folder / WEIGHTS}
    if (folder / CARD).is_file():
        files[CARD] = folder / CARD
    if signature:
        files[SIGNATURE] = signature
    _upload(url, digest, files, report)
    return digest


def replace_pointer(url: str, old: Pointer | None, new: Pointer) -> None:
    """Write a pointer if it still says what it said.

    Raises:
        ArtifactError: It says something else now, or an artifact that it names is not there.
    """
    if pointer_or_none(url) != old:
        raise ArtifactError(
            f"{without_credentials(url)} must say what it said before, got another content; look"
            " who changed it."
        )
    _write_pointer(url, new)


def _next_pointer(old: Pointer | None, digest: str, share: float | None) -> Pointer:
    if share is None:
        return Pointer(digest) if old is None else _serving(digest, old)
    if old is None or old.digest == digest:
        got = "none" if old is None else "the same one"
        raise ArtifactError(
            f"a canary runs beside another router that serves, got {got}; publish it without a"
            " share."
        )
    if not (math.isfinite(share) and 0 < share <= 1):
        raise ArtifactError(
            f"the share of a canary must be more than 0 and at most 1, got {share}."
        )
    return Pointer(old.digest, digest, share, old.history)


def _serving(digest: str, old: Pointer) -> Pointer:
    """The pointer after another router has begun to serve."""
    earlier = [name for name in (old.digest, *old.history) if name != digest]
    return Pointer(digest, history=tuple(earlier[:_MAX_HISTORY]))


def promote_canary(url: str) -> Pointer:
    """Let the canary of a pointer serve alone; what the pointer says now."""
    old = read_pointer(url)
    if old.canary is None:
        raise ArtifactError(
            f"{without_credentials(url)} must name a canary, got none; publish one first."
        )
    new = _serving(old.canary, old)
    _write_pointer(url, new)
    return new


def roll_back(url: str) -> Pointer:
    """Remove the canary of a pointer or, without one, name the router that served before."""
    old = read_pointer(url)
    if old.canary is None and not old.history:
        raise ArtifactError(
            f"{without_credentials(url)} must name a canary or a router that served before, got"
            " neither; publish another router."
        )
    if old.canary is not None:
        new = Pointer(old.digest, history=old.history)
    else:
        new = Pointer(old.history[0], history=old.history[1:])
    _write_pointer(url, new)
    return new


def pointer_or_none(url: str) -> Pointer | None:
    """The content of a pointer, or none if there is none yet."""
    try:
        return read_pointer(url)
    except PointerNotFoundError:
        return None


def _write_pointer(url: str, pointer: Pointer) -> None:
    """Replace the pointer: readers find the old or the new one, and the artifacts are there."""
    content = json.dumps(pointer.document(), indent=2).encode() + b"\n"
    with _remote(url, "written") as (system, path):
        folder = posixpath.dirname(path)
        for digest in (pointer.digest, *([pointer.canary] if pointer.canary else [])):
            names = [posixpath.join(folder, digest, name) for name in (MANIFEST, WEIGHTS)]
            for info in system.get_file_info(names):
                if info.type == pafs.FileType.NotFound:
                    raise ArtifactError(
                        f"a pointer must name an artifact beside it, got {digest[:16]}..., which"
                        f" lacks {posixpath.basename(info.path)}; publish it again."
                    )
        if isinstance(system, pafs.LocalFileSystem):
            with atomic_write(Path(path)) as beside:
                beside.write_bytes(content)
        else:
            _write(system, path, [content])  # an object is replaced as a whole
    if read_pointer(url) != pointer:
        raise ArtifactError(
            f"{without_credentials(url)} must hold what was written, got another content; is"
            " another rollout in progress? Look at it, and run the command again."
        )


def _upload(
    url: str, digest: str, files: Mapping[str, Path | bytes], report: Callable[[str], None]
) -> None:
    with _remote(url, "written") as (system, path):
        for name, source in files.items():
            target = posixpath.join(posixpath.dirname(path), digest, name)
            wanted = _sha256(_chunks(source))
            # A file that is there and right is left alone: a gateway may be reading it.
            is_new = _remote_sha256(system, target) != wanted
            if is_new:
                _write(system, target, _chunks(source))
                if _remote_sha256(system, target) != wanted:
                    raise ArtifactError(
                        f"{name} must be stored as it was sent, got other bytes back; publish it"
                        " again."
                    )
            report(f"{name}: {'uploaded and verified' if is_new else 'there already'}")


def _chunks(source: Path | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    with source.open("rb") as file:
        while chunk := file.read(_COPY_BYTES):
            yield chunk


def _sha256(chunks: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _remote_sha256(system: Any, path: str) -> str:
    """Digest of a file; empty if there is none."""
    if system.get_file_info(path).type == pafs.FileType.NotFound:
        return ""
    with system.open_input_stream(path) as file:
        return _sha256(iter(lambda: file.read(_COPY_BYTES), b""))


def _write(system: Any, path: str, chunks: Any) -> None:
    try:
        stream = system.open_output_stream(path)
    except FileNotFoundError:  # object storage needs no folders, and would get an empty object
        system.create_dir(posixpath.dirname(path), recursive=True)
        stream = system.open_output_stream(path)
    with stream:
        for chunk in chunks:
            stream.write(chunk)
