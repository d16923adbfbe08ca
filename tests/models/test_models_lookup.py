"""Names: what is found first, what is refused, and what each error tells the user to do."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from tiny_gguf import write_tiny_gguf

from dragonet.errors import ModelError
from dragonet.models import ModelRef, load_base, load_policy, make_renderer, resolve, save_adapter


@pytest.fixture
def folder(tiny: ModelRef, tmp_path: Path) -> Path:
    made = tmp_path / "model"
    shutil.copytree(tiny.folder, made)
    return made


def make_run(path: Path, model: object, base: ModelRef, seed: int = 0) -> Path:
    """A finished run's folder, as far as this room reads it, with an adapter that does something."""
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(yaml.safe_dump({"model": model}), encoding="utf-8")
    policy = load_policy(base, device="cpu", dtype="float32", seed=seed)
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                parameter.add_(0.01)
    save_adapter(policy, path / "adapter")
    return path


def test_a_local_folder_is_named_by_where_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    for name in ("model", "./model", str(folder)):
        assert resolve(name) == ModelRef(str(folder), folder, kind="folder")
    assert resolve(folder, trust_remote_code=True).trust_remote_code


def test_a_folder_that_looks_like_a_hub_id_wins_only_if_it_exists(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"model 'owner/model' is not on this machine"):
        resolve("owner/model")
    shutil.copytree(folder, tmp_path / "owner" / "model")
    assert resolve("owner/model").kind == "folder"


def test_a_bundled_name_wins_over_a_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder.rename(tmp_path / "tiny-random")
    assert resolve("tiny-random").kind == "tiny"
    assert resolve("./tiny-random").kind == "folder"


def test_unknown_names_and_paths() -> None:
    with pytest.raises(
        ModelError, match=r"no model is called 'tiny-randm'; did you mean 'tiny-random'\?; a model is a"
    ):
        resolve("tiny-randm")
    with pytest.raises(ModelError, match=r"known: smollm2-135m-instruct, tiny-random; a model is a bundled name"):
        resolve("zzz")
    for path in ("/nowhere/at/all", "./owner/model", "~/no-such-model", "../x/y"):
        with pytest.raises(ModelError, match="there is no such folder or file"):
            resolve(path)


def test_a_folder_without_weights_lists_what_is_there(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"has no weights; it holds .*config\.json.*; put model\.safetensors there"):
        resolve(str(folder))
    (folder / "big.gguf").touch()
    with pytest.raises(ModelError, match=r"give its path: .*big\.gguf"):
        resolve(str(folder))
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"it has no config\.json; it holds .*tokenizer\.json"):
        resolve(str(folder))
    with pytest.raises(ModelError, match="is a file; give a folder"):
        resolve(str(folder / "tokenizer.json"))


def test_weights_in_parts_must_all_be_there(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}), encoding="utf-8")
    with pytest.raises(ModelError, match=r"1 of 2 files of weights are missing \(first: b\.safetensors\)"):
        resolve(str(folder))
    (folder / "b.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(ModelError, match=r"b\.safetensors is only a git-lfs pointer; run `git lfs pull`"):
        resolve(str(folder))
    index.write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match="names no files"):
        resolve(str(folder))


def test_a_revision_belongs_to_a_hub_id(folder: Path) -> None:
    for name in ("tiny-random", str(folder)):
        with pytest.raises(ModelError, match=r"model\.revision 'v1' has no meaning .* only hub ids have revisions"):
            resolve(name, revision="v1")
    with pytest.raises(ModelError, match=r"names the revision 'v1' and model\.revision says 'v2'"):
        resolve("owner/model@v1", revision="v2")


def test_a_gguf_file_is_converted_once_and_computes_the_same(tmp_path: Path) -> None:
    file = tmp_path / "made.gguf"
    made = write_tiny_gguf(file, seed=4)
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")  # a stranger beside the file is not read
    notices: list[str] = []
    ref = resolve(str(file), on_notice=notices.append)
    assert (ref.kind, ref.name) == ("gguf", str(file))
    assert len(notices) == 2
    ids = torch.tensor([[256, 72, 105, 257]])
    with torch.no_grad():
        assert torch.equal(load_base(ref, device="cpu", dtype="float32")(ids).logits, made(ids).logits)
    renderer = make_renderer(ref)
    assert renderer.encode("a 12") == list(b"a 12")  # digits stay apart although the file has a token for 12
    assert (renderer.eos_ids, renderer.context_length) == ({257}, 512)
    assert renderer.tokenizer.model_max_length == 512
    assert "quantization" not in (ref.folder / "config.json").read_text(encoding="utf-8")

    shutil.copy(file, tmp_path / "copy.gguf")
    assert resolve(str(tmp_path / "copy.gguf"), on_notice=notices.append).folder == ref.folder
    assert len(notices) == 2


def test_a_gguf_file_that_changes_is_converted_again(tmp_path: Path) -> None:
    file = tmp_path / "made.gguf"
    write_tiny_gguf(file, seed=5)
    first = resolve(str(file)).folder
    assert resolve(str(file)).folder == first
    write_tiny_gguf(file, seed=6)
    os.utime(file, ns=(1, 1))
    assert resolve(str(file)).folder != first


def test_files_that_are_no_usable_gguf(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no GGUF file can be read at .*absent\.gguf: No such file"):
        resolve(str(tmp_path / "absent.gguf"))
    fake = tmp_path / "page.gguf"
    fake.write_bytes(b"<html>")
    with pytest.raises(ModelError, match=r"is not a GGUF file \(it starts with b'<htm'\); download it again"):
        resolve(str(fake))
    cut = tmp_path / "cut.gguf"
    write_tiny_gguf(cut, seed=7)
    cut.write_bytes(cut.read_bytes()[:2000])
    with pytest.raises(ModelError, match=r"cut\.gguf cannot be converted: .*original folder or hub id"):
        resolve(str(cut))


def test_a_finished_run_is_its_base_with_its_adapter(tiny: ModelRef, tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "first", {"id": "tiny-random", "revision": None}, tiny)
    expected = ModelRef("tiny-random", tiny.folder, (run / "adapter",), kind="run")
    assert resolve(str(run)) == expected
    assert resolve("first", runs_dir=tmp_path / "runs") == expected


def test_run_ids_are_looked_up_in_the_runs_folder_of_the_environment(
    tiny: ModelRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "elsewhere" / "r1", "tiny-random", tiny)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="no model is called 'r1'"):
        resolve("r1")
    monkeypatch.setenv("DRAGONET_RUNS_DIR", str(tmp_path / "elsewhere"))
    assert resolve("r1").kind == "run"


def test_a_run_on_a_run_folds_both_in_order(tiny: ModelRef, tmp_path: Path) -> None:
    first = make_run(tmp_path / "first", "tiny-random", tiny)
    second = make_run(tmp_path / "second", str(first), resolve(str(first)), seed=1)
    ref = resolve(str(second))
    assert ref.adapters == (first / "adapter", second / "adapter")
    assert (ref.name, ref.folder) == ("tiny-random", tiny.folder)
    load_base(ref, device="cpu", dtype="float32")


def test_a_lineage_is_followed_while_its_adapters_are_there(tiny: ModelRef, tmp_path: Path) -> None:
    """The config names the first run, whose adapter the lineage lists too: it must not be folded twice."""
    first = make_run(tmp_path / "first", "tiny-random", tiny)
    second = make_run(tmp_path / "second", str(first), resolve(str(first)), seed=1)
    lineage = {"model": {"name": "tiny-random", "kind": "run", "revision": None}, "adapters": [str(first / "adapter")]}
    (second / "lineage.json").write_text(json.dumps(lineage), encoding="utf-8")
    assert resolve(str(second)).adapters == (first / "adapter", second / "adapter")

    lineage["adapters"] = ["/gone/first/adapter"]  # the folders moved: the run that the config names still serves
    (second / "lineage.json").write_text(json.dumps(lineage), encoding="utf-8")
    assert resolve(str(second)).adapters == (first / "adapter", second / "adapter")

    first.rename(second / "earlier")  # a copy inside the run needs no other folder
    lineage["adapters"] = ["earlier/adapter"]
    (second / "lineage.json").write_text(json.dumps(lineage), encoding="utf-8")
    assert resolve(str(second)).adapters == (second / "earlier" / "adapter", second / "adapter")
    assert resolve(str(second)).folder == tiny.folder
    shutil.rmtree(second / "earlier")
    with pytest.raises(ModelError, match=r"the base of .*second: no model at .*first: there is no such folder"):
        resolve(str(second))


def test_a_lineage_knows_where_a_relative_base_was(
    tiny: ModelRef, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", "./model", tiny)
    lineage = {"model": {"name": str(folder), "kind": "folder", "revision": None}, "adapters": []}
    (run / "lineage.json").write_text(json.dumps(lineage), encoding="utf-8")
    assert resolve(str(run)).folder == folder
    folder.rename(tmp_path / "moved")  # gone from there: the config's own words are what is left
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"the base of .*run: no model at .*model: there is no such folder"):
        resolve(str(run))
    (tmp_path / "moved").rename(tmp_path / "model")
    assert resolve(str(run)).folder == folder


def test_runs_that_cannot_be_continued(tiny: ModelRef, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"id": ""}, tiny)
    with pytest.raises(ModelError, match=r"its config\.yaml names no model"):
        resolve(str(run))
    (run / "config.yaml").write_text("a: [", encoding="utf-8")
    with pytest.raises(ModelError, match=r"config\.yaml cannot be read"):
        resolve(str(run))
    shutil.rmtree(run / "adapter")
    with pytest.raises(ModelError, match=r"run run has no finished adapter .* let the run finish, or resume it"):
        resolve(str(run))


def test_runs_in_a_circle(tiny: ModelRef, tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", str(tmp_path / "two"), tiny)
    shutil.copytree(one, tmp_path / "two")
    (tmp_path / "two" / "config.yaml").write_text(f"model: {one}\n", encoding="utf-8")
    with pytest.raises(ModelError, match="they form a circle"):
        resolve(str(one))


def test_a_bare_adapter_is_folded_into_the_base_it_names(tiny: ModelRef, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "tiny-random", tiny)
    ref = resolve(str(run / "adapter"))
    assert (ref.kind, ref.adapters) == ("folder", (run / "adapter",))
    config = json.loads((run / "adapter" / "adapter_config.json").read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = None
    (run / "adapter" / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ModelError, match="names no base: set base_model_name_or_path"):
        resolve(str(run / "adapter"))
