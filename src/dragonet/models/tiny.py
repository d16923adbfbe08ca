"""Random two-layer models of a few architectures and a byte tokenizer, for tests and for trying a config in seconds.

Owns `tiny-random` (a Llama of width 64 over bytes) and small Llama, Qwen2, Qwen3, Gemma-2 and Gemma-3 configurations.
Weights are drawn with numpy, so a seed gives the same model under every torch version and dtype. Downloads nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dragonet.errors import ModelError, did_you_mean
from dragonet.models.cache import build_folder, cache_root
from dragonet.models.support import quiet

if TYPE_CHECKING:
    import torch

__all__ = [
    "CONTEXT_LENGTH",
    "TINY_KINDS",
    "TINY_NAME",
    "VOCAB_SIZE",
    "tiny_config",
    "tiny_folder",
    "tiny_model",
    "tiny_tokenizer",
]

TINY_NAME: Final = "tiny-random"
TINY_KINDS: Final = ("gemma2", "gemma3", "llama", "qwen2", "qwen3")
CONTEXT_LENGTH: Final = 512

_BOS, _EOS, _PAD, _START = "<|begin|>", "<|im_end|>", "<|pad|>", "<|im_start|>"
_SPECIALS: Final = (_BOS, _EOS, _PAD, _START)
VOCAB_SIZE: Final = 256 + len(_SPECIALS)
_BOS_ID, _EOS_ID, _PAD_ID = 256, 257, 258
_FORMAT: Final = 1  # counts up when the files in the cache would differ

_CHAT_TEMPLATE: Final = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tiny_config(kind: str = "llama") -> Any:
    """Return a transformers configuration of `kind`: 2 layers, width 64, 4 heads, byte vocabulary, context 512."""
    import transformers

    common: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT_LENGTH,
        "bos_token_id": _BOS_ID,
        "eos_token_id": _EOS_ID,
        "pad_token_id": _PAD_ID,
        "tie_word_embeddings": False,
    }
    # one sliding and one full layer, a window shorter than any real prompt, and soft caps that bite
    gemma: dict[str, Any] = {
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"],
        "tie_word_embeddings": True,
    }
    if kind == "llama":
        return transformers.LlamaConfig(**common)
    if kind == "qwen2":
        return transformers.Qwen2Config(**common)
    if kind == "qwen3":
        return transformers.Qwen3Config(**common, head_dim=16)
    if kind == "gemma2":
        return transformers.Gemma2Config(
            **{**common, **gemma}, attn_logit_softcapping=5.0, final_logit_softcapping=10.0
        )
    if kind == "gemma3":
        return transformers.Gemma3TextConfig(**{**common, **gemma})
    raise ModelError(f"unknown kind of tiny model {kind!r}{did_you_mean(kind, TINY_KINDS)}")


def tiny_model(kind: str = "llama", seed: int = 0, dtype: torch.dtype | None = None) -> Any:
    """Return a random model of `kind` on the CPU in eval mode; `dtype` is float32 unless given (float64 works)."""
    import torch
    from transformers import AutoModelForCausalLM

    from dragonet.models.attention import attention_for

    config = tiny_config(kind)
    with torch.random.fork_rng(devices=[]):  # the constructor draws weights that are replaced below
        model = AutoModelForCausalLM.from_config(
            config, dtype=dtype or torch.float32, attn_implementation=attention_for(config)
        )
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            parameter.copy_(torch.from_numpy(_draw(rng, name, tuple(parameter.shape), zero_centred="gemma" in kind)))
    return model.eval()


def _draw(rng: np.random.Generator, name: str, shape: tuple[int, ...], *, zero_centred: bool) -> Any:
    noise = rng.standard_normal(shape)
    if "norm" in name:
        return noise * 0.05 + (0.0 if zero_centred else 1.0)
    if len(shape) == 1:
        return noise * 0.05
    if "lm_head" in name:
        # twice the usual scale: a normalised hidden state can then put nearly all probability on one token, so that
        # an adapter below a frozen head can learn a task to the end
        return noise * 2.0 / np.sqrt(shape[1])
    if "embed" in name:
        return noise * (2.0 / np.sqrt(shape[1]) if zero_centred else 1.0)
    return noise / np.sqrt(shape[1])


def tiny_tokenizer() -> Any:
    """Return the byte tokenizer: ids 0 to 255 are bytes, then begin, end (eos), pad and start. Any text round-trips."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(vocab=_byte_vocabulary(), merges=[]))
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in _SPECIALS])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{_BOS} $A", pair=f"{_BOS} $A $B", special_tokens=[(_BOS, _BOS_ID)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=_BOS,
        eos_token=_EOS,
        pad_token=_PAD,
        additional_special_tokens=[_START],
        chat_template=_CHAT_TEMPLATE,
        model_max_length=CONTEXT_LENGTH,
        clean_up_tokenization_spaces=False,
    )


def _byte_vocabulary() -> dict[str, int]:
    """Map the printable stand-in of each byte (as byte-level BPE writes it) to the byte's value."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    stand_in = {byte: chr(byte) for byte in plain}
    for offset, byte in enumerate(b for b in range(256) if b not in stand_in):
        stand_in[byte] = chr(256 + offset)
    return {stand_in[byte]: byte for byte in range(256)}


def tiny_folder() -> Path:
    """Return the folder of `tiny-random`, written into the cache on first use."""
    return build_folder(cache_root() / "models" / f"{TINY_NAME}-v{_FORMAT}", _write_tiny)


def _write_tiny(folder: Path) -> None:
    with quiet():
        tiny_model("llama", seed=0).save_pretrained(folder)
        tiny_tokenizer().save_pretrained(folder)
