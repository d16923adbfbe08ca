"""Write a random tiny Llama as a GGUF file, as llama.cpp's converter would: with permuted queries and keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from dragonet.models.tiny import tiny_model, tiny_tokenizer

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
UNUSED_BYTE = 0xF8  # never part of UTF-8
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_tiny_gguf(path: Path, seed: int = 0, architecture: str = "llama") -> Any:
    """Write the file and return the model it was made from."""
    model = tiny_model("llama", seed)
    config, tokenizer = model.config, tiny_tokenizer()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, tokenizer)
    for name, parameter in model.named_parameters():
        writer.add_tensor(*_tensor(name, parameter.detach().numpy(), config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _add_tokenizer(writer: Any, tokenizer: Any) -> None:
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    tokens[UNUSED_BYTE] = "12"  # a token that joins digits: reached unless digits are split before
    control = set(tokenizer.all_special_tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in control else 1 for token in tokens])
    writer.add_token_merges(["1 2"])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_chat_template(tokenizer.chat_template)


def _tensor(name: str, values: Any, config: Any) -> tuple[str, Any]:
    stem = name.removesuffix(".weight")
    if stem in OUTER:
        return f"{OUTER[stem]}.weight", np.ascontiguousarray(values)
    _, _, layer, inner = stem.split(".", 3)
    if inner in ("self_attn.q_proj", "self_attn.k_proj"):
        heads = config.num_attention_heads if "q_proj" in inner else config.num_key_value_heads
        out, width = values.shape
        values = values.reshape(heads, 2, out // heads // 2, width).swapaxes(1, 2).reshape(out, width)
    return f"blk.{layer}.{NAMES[inner]}.weight", np.ascontiguousarray(values)
