"""Tiny real models, built on the spot: real configurations, a real tokenizer, weights drawn at random."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def tiny_tokenizer(folder: Path) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["In 1801, she was a child. In 1953, he was an adult; they were not."] * 20, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(folder)
    return fast


def saved(folder: Path, network: Any) -> str:
    """The network in a folder with the tokenizer, its weights drawn anew so that attention matters."""
    import torch

    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.3)
    network.save_pretrained(folder)
    tiny_tokenizer(folder)
    return str(folder)


def tiny_llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=320, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=1,
        )
    )  # fmt: skip


def tiny_gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(vocab_size=320, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=1)
    )


def tiny_gemma2() -> Any:
    """Scales its logits after the head, and attends within a sliding window in every other layer."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    return Gemma2ForCausalLM(
        Gemma2Config(
            vocab_size=320, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, head_dim=8,
            num_key_value_heads=2, max_position_embeddings=64, sliding_window=8, final_logit_softcapping=0.5,
            bos_token_id=0, eos_token_id=1,
        )
    )  # fmt: skip


def tiny_bloom() -> Any:
    """Its positions come from the mask, so a tree cannot be shown to it."""
    from transformers import BloomConfig, BloomForCausalLM

    return BloomForCausalLM(
        BloomConfig(vocab_size=320, hidden_size=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=1)
    )


def tiny_gpt_neo(max_position_embeddings: int = 512) -> Any:
    """Attends within a window by the place in the pack, not by depth: a small tree would not show it."""
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    return GPTNeoForCausalLM(
        GPTNeoConfig(
            vocab_size=320, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
            window_size=64, max_position_embeddings=max_position_embeddings, bos_token_id=0, eos_token_id=1,
        )
    )  # fmt: skip


def tiny_gpt_neo_short() -> Any:
    """Has fewer places than a pack has nodes."""
    return tiny_gpt_neo(max_position_embeddings=128)


def tiny_bert_head() -> Any:
    """Called a language model head, but sees what comes after."""
    from transformers import BertConfig, BertLMHeadModel

    return BertLMHeadModel(
        BertConfig(vocab_size=320, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    )


def tiny_mamba() -> Any:
    """Has no attention at all."""
    from transformers import MambaConfig, MambaForCausalLM

    return MambaForCausalLM(
        MambaConfig(vocab_size=320, hidden_size=32, num_hidden_layers=2, state_size=8, bos_token_id=0, eos_token_id=1)
    )
