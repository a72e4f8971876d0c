"""Networks such as users have, exported by the exporters that users have. Their weights are random."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from tests.integration.cost.exporting import Case, export


class Cnn(nn.Module):
    """Convolutions of every kind: strided, dilated, grouped, depthwise, transposed, 1-D."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        )
        self.depthwise = nn.Conv2d(16, 16, 5, padding=4, dilation=2, groups=16)
        self.pointwise = nn.Conv2d(16, 32, 1)
        self.grouped = nn.Conv2d(32, 32, 3, padding=1, groups=4)
        self.up = nn.ConvTranspose2d(32, 8, 2, stride=2)
        self.up_grouped = nn.ConvTranspose2d(
            8, 8, 3, stride=2, padding=1, output_padding=1, groups=2
        )
        self.line = nn.Conv1d(8, 4, 3)
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = nn.functional.max_pool2d(self.stem(x), 3, 2, 1, ceil_mode=True)
        x = nn.functional.hardswish(self.depthwise(x))
        x = nn.functional.silu(self.grouped(self.pointwise(x)))
        x = nn.functional.leaky_relu(self.up_grouped(self.up(x)))
        line = self.line(x.mean(dim=2))
        x = nn.functional.avg_pool2d(x, 2)
        return self.head(x.mean(dim=(2, 3))), torch.softmax(line, dim=-1)


def cnn(folder: Path) -> Case:
    return export(Cnn(), (torch.rand(2, 3, 33, 33),), folder / "cnn.onnx", names=["x"])


def cnn_dynamic(folder: Path) -> Case:
    return export(
        Cnn(),
        (torch.rand(2, 3, 33, 33),),
        folder / "cnn_dynamic.onnx",
        names=["x"],
        dynamic={"x": {0: "batch", 2: "height", 3: "width"}},
    )


def cnn_dynamo(folder: Path) -> Case:
    return export(
        Cnn(), (torch.rand(2, 3, 33, 33),), folder / "cnn_dynamo.onnx", names=["x"], dynamo=True
    )


class Bert(nn.Module):
    def __init__(self, attention: str = "eager") -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(
            vocab_size=100,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            attn_implementation=attention,
        )
        self.model = BertModel(config)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        out = self.model(input_ids=input_ids, attention_mask=attention_mask)
        return out.pooler_output + out.last_hidden_state.mean(dim=1)


def _tokens(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, 100, (batch, length)), torch.ones(batch, length, dtype=torch.int64)


_TOKEN_NAMES = ["input_ids", "attention_mask"]
_TOKEN_AXES = {name: {0: "batch", 1: "seq"} for name in _TOKEN_NAMES}


def bert_static(folder: Path) -> Case:
    return export(Bert(), _tokens(1, 16), folder / "bert.onnx", names=_TOKEN_NAMES)


def bert_dynamic(folder: Path) -> Case:
    return export(
        Bert("sdpa"),
        _tokens(2, 12),
        folder / "bert_dynamic.onnx",
        names=_TOKEN_NAMES,
        dynamic=_TOKEN_AXES,
    )


def bert_dynamo_dynamic(folder: Path) -> Case:
    return export(
        Bert("sdpa"),
        _tokens(2, 12),
        folder / "bert_dynamo_dynamic.onnx",
        names=_TOKEN_NAMES,
        dynamic=_TOKEN_AXES,
        dynamo=True,
    )


class Swin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import SwinConfig, SwinModel

        config = SwinConfig(
            image_size=56,
            patch_size=4,
            embed_dim=16,
            depths=[2, 2],
            num_heads=[2, 4],
            window_size=7,
        )
        self.model = SwinModel(config)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model(pixel_values).last_hidden_state
        return result


def swin(folder: Path) -> Case:
    """Windowed attention: shifts, masks and partitions by shape arithmetic."""
    return export(
        Swin(),
        (torch.rand(1, 3, 56, 56),),
        folder / "swin.onnx",
        names=["pixel_values"],
        dynamic={"pixel_values": {0: "batch"}},
    )


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, num_layers=2, bidirectional=True)
        self.gru = nn.GRU(32, 12, batch_first=True)
        self.rnn = nn.RNN(12, 6, nonlinearity="tanh")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.lstm(x)[0]
        x = self.gru(x.transpose(0, 1))[0]
        result: torch.Tensor = self.rnn(x.transpose(0, 1))[0]
        return result


def recurrent(folder: Path) -> Case:
    return export(Recurrent(), (torch.rand(7, 3, 8),), folder / "recurrent.onnx", names=["x"])


class Detector(nn.Module):
    """A pyramid with resizing by size and by scale, concatenation, splits and decoding."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1), nn.Conv2d(16, 32, 3, 2, 1)]
        )
        self.side = nn.ModuleList([nn.Conv2d(8, 8, 1), nn.Conv2d(16, 8, 1), nn.Conv2d(32, 8, 1)])
        self.head = nn.Conv2d(8, 3 * 6, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = []
        for down, side in zip(self.down, self.side, strict=True):
            x = torch.relu(down(x))
            levels.append(side(x))
        levels[1] = levels[1] + nn.functional.interpolate(levels[2], size=levels[1].shape[2:])
        levels[0] = levels[0] + nn.functional.interpolate(
            levels[1], scale_factor=2.0, mode="bilinear", align_corners=False
        )
        found = []
        for level in levels:
            out = self.head(level)
            b, _, h, w = out.shape
            out = out.view(b, 3, 6, h, w).permute(0, 1, 3, 4, 2)
            place, size, rest = out.split([2, 2, 2], dim=-1)
            out = torch.cat([torch.sigmoid(place) * 2, torch.exp(size), rest], dim=-1)
            found.append(out.reshape(b, -1, 6))
        return torch.cat(found, dim=1)


def detector(folder: Path) -> Case:
    return export(
        Detector(),
        (torch.rand(1, 3, 64, 48),),
        folder / "detector.onnx",
        names=["x"],
        dynamic={"x": {0: "batch", 2: "height", 3: "width"}},
    )


class Called(nn.Module):
    """A model of transformers, called with one or two inputs by name."""

    def __init__(self, model: nn.Module, names: list[str], result: str) -> None:
        super().__init__()
        self.model = model
        self._names = names
        self._result = result

    def forward(self, a: torch.Tensor, b: torch.Tensor | None = None) -> torch.Tensor:
        given = dict(zip(self._names, (a, b), strict=False))
        made: torch.Tensor = getattr(self.model(**given), self._result)
        return made


def gpt2_dynamo(folder: Path) -> Case:
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4, use_cache=False)
    model = Called(GPT2Model(config), ["input_ids"], "last_hidden_state")
    return export(
        model,
        (_tokens(2, 10)[0],),
        folder / "gpt2_dynamo.onnx",
        names=["input_ids"],
        dynamic={"input_ids": {0: "batch", 1: "seq"}},
        dynamo=True,
    )


def t5(folder: Path) -> Case:
    """Encoder and decoder: cross attention, relative positions in buckets."""
    from transformers import T5Config, T5Model

    config = T5Config(
        vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, use_cache=False
    )
    names = ["input_ids", "decoder_input_ids"]
    return export(
        Called(T5Model(config), names, "last_hidden_state"),
        (_tokens(1, 10)[0], _tokens(1, 7)[0]),
        folder / "t5.onnx",
        names=names,
        dynamic={"input_ids": {1: "seq"}, "decoder_input_ids": {1: "target"}},
    )


def deberta(folder: Path) -> Case:
    """Disentangled attention: contractions of constants, positions by shape arithmetic."""
    from transformers import DebertaV2Config, DebertaV2Model

    config = DebertaV2Config(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=16,
    )
    return export(
        Called(DebertaV2Model(config), ["input_ids"], "last_hidden_state"),
        (_tokens(1, 12)[0],),
        folder / "deberta.onnx",
        names=["input_ids"],
        dynamic={"input_ids": {0: "batch", 1: "seq"}},
    )


def segformer(folder: Path) -> Case:
    """Segmentation: attention on reduced maps, resizing to computed sizes."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16
    )
    return export(
        Called(SegformerForSemanticSegmentation(config), ["pixel_values"], "logits"),
        (torch.rand(1, 3, 64, 64),),
        folder / "segformer.onnx",
        names=["pixel_values"],
        dynamic={"pixel_values": {0: "batch", 2: "height", 3: "width"}},
    )
