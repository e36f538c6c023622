"""A cross-encoder of the real kind, made here and tiny: loaded from a folder, no network."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from copilotd.embed.encoder import load_reranker
from copilotd.embed.models import bundled_folder, locate_model
from copilotd.errors import ModelError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    made = tmp_path_factory.mktemp("cross-encoder")
    bundled = bundled_folder()
    assert bundled is not None
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(bundled / name, made / name)
    config = BertConfig(
        vocab_size=30522,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    config.num_labels = 1
    BertForSequenceClassification(config).save_pretrained(made)
    return made


def test_it_gives_a_share_for_each_text(folder: Path) -> None:
    reranker = load_reranker(locate_model(str(folder)))
    scores = reranker.score("how hot is the kiln?", ["The kiln is hot.", "", "caf\udce9", "x" * 5000])
    assert scores.shape == (4,)
    assert scores.dtype == np.float32
    assert np.all((scores >= 0) & (scores <= 1))
    again = reranker.score("how hot is the kiln?", ["The kiln is hot."])
    assert again[0] == pytest.approx(scores[0], abs=1e-5)
    assert reranker.score("kiln", []).shape == (0,)


def test_a_folder_that_holds_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_reranker(locate_model(str(tmp_path)))
