"""A hub id to a folder: the local Hugging Face cache first, then the network, and a clear answer when neither helps.

Waits at most five seconds for the hub to answer before it gives up; only a download that has begun may take longer.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Final

from dragonet.errors import ModelError
from dragonet.models.convert import Notice
from dragonet.models.folder import weights_problem

__all__ = ["hub_folder"]

_ANSWER_S: Final = 4.0
_FILES: Final = ["*.json", "*.model", "*.txt", "*.jinja", "*.py"]
_TOKENIZERS: Final = ("tokenizer.json", "vocab.json", "vocab.txt")
_INNER: Final = ["*/*"]  # copies in other formats that some repositories keep in subfolders


def hub_folder(model: str, revision: str | None, *, on_notice: Notice | None = None) -> Path:
    """Return the snapshot folder of a hub model; its name is the commit.

    Raises ModelError within about five seconds when it is neither cached nor to be had.
    """
    cached = _cached(model, revision)
    if cached is not None and weights_problem(cached) is None and _has_tokenizer(cached):
        return cached
    info = _ask(model, revision)
    names = [str(sibling.rfilename) for sibling in info.siblings or [] if "/" not in sibling.rfilename]
    weights = "*.safetensors" if any(name.endswith(".safetensors") for name in names) else "*.bin"
    if "config.json" not in names:
        raise ModelError(
            f"hub model {model!r} has no config.json: it is not in the transformers layout; it holds "
            f"{', '.join(sorted(names)[:12]) or 'no files'}"
        )
    if on_notice:
        on_notice(f"downloading {model} from the hub into {_cache_folder()}")
    from huggingface_hub import snapshot_download

    try:
        path = snapshot_download(
            model, revision=revision, allow_patterns=[*_FILES, weights], ignore_patterns=_INNER, etag_timeout=_ANSWER_S
        )
    except Exception as error:  # the hub's client raises its own, httpx's and the system's errors
        raise _not_found(model, revision, f"the download broke off ({_say(error)})") from error
    return Path(path)


def _cached(model: str, revision: str | None) -> Path | None:
    """The snapshot in the local cache, whole or not: which files are needed is for us to judge, not for the hub."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(model, revision=revision, local_files_only=True, allow_patterns=["config.json"]))
    except HFValidationError as error:
        raise ModelError(f"{model!r} is not a hub id: {_say(error)}") from error
    except OSError:
        return None


def _has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _TOKENIZERS) or any(folder.glob("*.model"))


def _ask(model: str, revision: str | None) -> Any:
    """The hub's description of the model, from a thread so that a name server that hangs cannot hold us up."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    if constants.is_offline_mode():
        raise _not_found(model, revision, "and HF_HUB_OFFLINE forbids looking for it on the hub")
    answer: list[Any] = []

    def ask() -> None:
        try:
            answer.append(HfApi().model_info(model, revision=revision, timeout=_ANSWER_S))
        except Exception as error:
            answer.append(error)

    thread = threading.Thread(target=ask, daemon=True, name="dragonet-hub")
    thread.start()
    thread.join(_ANSWER_S + 0.5)
    result = answer[0] if answer else TimeoutError(f"no answer within {_ANSWER_S:.0f} s")
    if isinstance(result, GatedRepoError):
        raise ModelError(
            f"hub model {model!r} is gated: accept its terms on its page, then run `hf auth login` or set HF_TOKEN"
        ) from result
    if isinstance(result, RevisionNotFoundError):
        raise ModelError(f"hub model {model!r} has no revision {revision!r}; see its page for branches and tags")
    if isinstance(result, RepositoryNotFoundError):
        raise ModelError(
            f"the hub knows no model {model!r}, and no such folder exists here; check the spelling, or set HF_TOKEN if "
            "it is private"
        ) from result
    if isinstance(result, Exception):
        raise _not_found(model, revision, f"and the hub cannot be reached ({_say(result)})") from result
    return result


def _not_found(model: str, revision: str | None, why: str) -> ModelError:
    asked = f"{model}@{revision}" if revision else model
    return ModelError(
        f"model {asked!r} is not on this machine: there is no such folder and nothing usable in {_cache_folder()}, "
        f"{why}; on a machine with a network run `hf download {model}` and copy that cache folder here, or download "
        "the model into a folder and give its path (config.json, *.safetensors, tokenizer.json, tokenizer_config.json)"
    )


def _cache_folder() -> str:
    from huggingface_hub import constants

    return str(constants.HF_HUB_CACHE)


def _say(error: BaseException) -> str:
    text = str(error).strip()
    return (text.splitlines()[0] if text else type(error).__name__)[:200]
