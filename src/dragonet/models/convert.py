"""A GGUF file to a folder in the transformers layout, once, in float32.

float32 holds the dequantised values exactly (half precisions do not), so that every dtype loaded later is rounded once.
Four traps are dealt with here: the quantisation mark that forbids saving, the missing context length, a lost split of
digits, and neighbouring files that transformers would read instead of the GGUF's own tokenizer.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, Final

from dragonet.errors import ModelError
from dragonet.models.cache import build_folder, cache_root, write_atomic
from dragonet.models.support import first_line, quiet, read_json

__all__ = ["FORMAT", "Notice", "convert_gguf", "gguf_folder", "sha256_of"]

Notice = Callable[[str], None]
FORMAT: Final = 1  # counts up when a conversion would write other files
_MAGIC: Final = b"GGUF"
_DIGITS_APART: Final = frozenset({"smollm"})  # pre-tokenizers (by GGUF name) that split every digit off


def gguf_folder(file: Path, *, on_notice: Notice | None = None) -> Path:
    """Return the folder a user's GGUF file was converted into, converting it on first use.

    Keyed by the file's content. Raises ModelError for a file that is absent, no GGUF, or of an unknown architecture.
    """
    digest = _remembered_digest(file)
    target = cache_root() / "models" / f"gguf-{digest[:16]}-v{FORMAT}"
    return build_folder(target, lambda folder: convert_gguf(file, folder, on_notice=on_notice))


def convert_gguf(file: Path, folder: Path, *, on_notice: Notice | None = None) -> None:
    """Write `file` into the empty `folder` as config, float32 safetensors and tokenizer."""
    size = file.stat().st_size / 1e6
    if on_notice:
        on_notice(f"converting {file.name} ({size:.0f} MB) once, which takes some seconds per 100 MB")
    began = time.monotonic()
    try:
        with quiet(), redirect_stderr(io.StringIO()), _alone(file, folder) as (place, name):  # it draws a bar
            _write(place, name, folder)
    except Exception as error:  # transformers and tokenizers raise whatever an odd file leads them to
        if isinstance(error, OSError) and error.errno is not None:  # a full disk and the like: the cache's to tell
            raise
        raise ModelError(
            f"{file} cannot be converted: {first_line(error)}; transformers reads GGUF files of common architectures "
            "only, so use the model's original folder or hub id"
        ) from error
    if on_notice:
        on_notice(f"converted {file.name} in {time.monotonic() - began:.0f} s")


def sha256_of(file: Path) -> str:
    """Return the file's SHA-256 as hexadecimal digits. Raises ModelError when it cannot be read."""
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}") from error


def _write(place: Path, name: str, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quantised = AutoModelForCausalLM.from_pretrained(
        str(place), gguf_file=name, dtype=torch.float32, local_files_only=True, **_dequantise()
    )
    config = quantised.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):  # a model without the marks of quantisation, which may be saved
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(quantised.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = quantised.generation_config
    model.save_pretrained(folder)

    tokenizer = AutoTokenizer.from_pretrained(str(place), gguf_file=name)
    tokenizer.model_max_length = config.max_position_embeddings
    if _pre_tokenizer_name(place / name) in _DIGITS_APART:
        _split_digits(tokenizer)
    tokenizer.save_pretrained(folder)


def _dequantise() -> dict[str, Any]:
    """What asks transformers for dense weights where it could keep them packed (a GPU with its kernels)."""
    import transformers

    config = getattr(transformers, "GgufConfig", None)
    return {} if config is None else {"quantization_config": config(dequantize=True)}


def _pre_tokenizer_name(file: Path) -> str:
    from gguf import GGUFReader

    field = GGUFReader(file).get_field("tokenizer.ggml.pre")
    return str(field.contents()) if field is not None else ""


def _split_digits(tokenizer: Any) -> None:
    from tokenizers import pre_tokenizers

    backend = tokenizer.backend_tokenizer
    if isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):  # a chain already splits what it should
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, backend.pre_tokenizer])


@contextmanager
def _alone(file: Path, folder: Path) -> Iterator[tuple[Path, str]]:
    """Show transformers the file in a folder of its own, where links work; else where it lies."""
    place = folder / "source"
    place.mkdir()
    link = place / "model.gguf"
    try:
        link.symlink_to(file.resolve())
    except OSError:
        place.rmdir()
        yield file.parent, file.name
        return
    try:
        yield place, link.name
    finally:
        link.unlink()
        place.rmdir()


def _remembered_digest(file: Path) -> str:
    """The file's digest, computed again only when its size or time of change differ."""
    try:
        stat = file.stat()
        with file.open("rb") as stream:
            magic = stream.read(len(_MAGIC))
    except OSError as error:
        raise ModelError(f"no GGUF file can be read at {file}: {error.strerror or error}") from error
    if magic != _MAGIC:
        raise ModelError(f"{file} is not a GGUF file (it starts with {magic!r}); download it again")
    key = hashlib.sha256(str(file.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:24]
    note = cache_root() / "digests" / f"{key}.json"
    known = read_json(note)
    if (known.get("size"), known.get("mtime_ns")) == (stat.st_size, stat.st_mtime_ns):
        return str(known.get("sha256"))
    digest = sha256_of(file)
    write_atomic(note, json.dumps({"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": digest}))
    return digest
