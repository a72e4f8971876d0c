"""Networks such as users have, exported by the exporters that users have. Their weights are random."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

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


class Decoder(nn.Module):
    """Attention over the keys of earlier tokens and its own, as decoders with a cache have it."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(32, 32)
        self.key = nn.Linear(32, 32)

    def forward(
        self, x: torch.Tensor, past: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        batch, tokens, _ = x.shape
        query = self.query(x).view(batch, tokens, 4, 8).transpose(1, 2)
        key = self.key(x).view(batch, tokens, 4, 8).transpose(1, 2)
        keys = torch.cat([past, key], 2)
        shares = (query @ keys.transpose(-1, -2) + mask[:, None, None, :]).softmax(-1)
        return (shares @ keys).transpose(1, 2).reshape(batch, tokens, 32), keys


class Called(nn.Module):
    """A model of transformers, called with one or two inputs by name."""

    def __init__(self, model: nn.Module, result: Callable[[Any], Any], *names: str) -> None:
        super().__init__()
        self.model = model
        self._names = names
        self._result = result

    def forward(self, a: torch.Tensor, b: torch.Tensor | None = None) -> torch.Tensor:
        given = dict(zip(self._names, (a, b), strict=False))
        made: torch.Tensor = self._result(self.model(**given))
        return made


def last(out: Any) -> Any:
    return out.last_hidden_state


def bert(attention: str) -> nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, attn_implementation=attention,
    )  # fmt: skip
    return Called(
        BertModel(config),
        lambda out: out.pooler_output + out.last_hidden_state.mean(dim=1),
        "input_ids", "attention_mask",
    )  # fmt: skip


def swin() -> nn.Module:
    """Windowed attention: shifts, masks and partitions by shape arithmetic."""
    from transformers import SwinConfig, SwinModel

    config = SwinConfig(
        image_size=56, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=7
    )
    return Called(SwinModel(config), last, "pixel_values")


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4, use_cache=False)
    return Called(GPT2Model(config), last, "input_ids")


def t5() -> nn.Module:
    """Encoder and decoder: cross attention, relative positions in buckets."""
    from transformers import T5Config, T5Model

    config = T5Config(
        vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, use_cache=False
    )
    return Called(T5Model(config), last, "input_ids", "decoder_input_ids")


def deberta() -> nn.Module:
    """Disentangled attention: contractions of constants, positions by shape arithmetic."""
    from transformers import DebertaV2Config, DebertaV2Model

    config = DebertaV2Config(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, relative_attention=True, pos_att_type=["p2c", "c2p"],
        position_buckets=16,
    )  # fmt: skip
    return Called(DebertaV2Model(config), last, "input_ids")


def segformer() -> nn.Module:
    """Segmentation: attention on reduced maps, resizing to computed sizes."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16
    )
    return Called(SegformerForSemanticSegmentation(config), lambda out: out.logits, "pixel_values")


def image(*shape: int, name: str = "x") -> dict[str, torch.Tensor]:
    return {name: torch.rand(shape)}


def tokens(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(0, 100, (batch, length))}


def masked(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {**tokens(batch, length), "attention_mask": torch.ones(batch, length, dtype=torch.int64)}


@dataclass(frozen=True)
class Exported:
    """A network, and how it is exported."""

    make: Callable[[], nn.Module]
    inputs: Mapping[str, torch.Tensor]
    # Names of open lengths; a function where torch takes a second to make them
    dynamic: Mapping[str, Mapping[int, Any]] | Callable[[], Any] | None = None
    dynamo: bool = False

    def __call__(self, folder: Path) -> Case:
        """Writes it into a folder."""
        path = folder / "exported.onnx"
        dynamic = self.dynamic() if callable(self.dynamic) else self.dynamic
        return export(self.make(), self.inputs, path, dynamic=dynamic, dynamo=self.dynamo)


_SEQUENCE: Final = {0: "batch", 1: "seq"}
_MASKED: Final = {"input_ids": _SEQUENCE, "attention_mask": _SEQUENCE}
_SIZE: Final = {0: "batch", 2: "height", 3: "width"}


def _of_decoder() -> Mapping[str, Mapping[int, Any]]:
    batch, seq, past = (torch.export.Dim(name) for name in ("batch", "seq", "past"))
    # The length of the mask, which torch names as an expression: past + seq.
    mask = {0: batch, 1: torch.export.Dim.AUTO}
    return {"x": {0: batch, 1: seq}, "past": {0: batch, 2: past}, "mask": mask}


EXPORTED: Final = {
    "cnn": Exported(Cnn, image(2, 3, 33, 33)),
    "cnn_dynamic": Exported(Cnn, image(2, 3, 33, 33), {"x": _SIZE}),
    "cnn_dynamo": Exported(Cnn, image(2, 3, 33, 33), dynamo=True),
    "bert_static": Exported(lambda: bert("eager"), masked(1, 16)),
    "bert_dynamic": Exported(lambda: bert("sdpa"), masked(2, 12), _MASKED),
    "bert_dynamo_dynamic": Exported(lambda: bert("sdpa"), masked(2, 12), _MASKED, dynamo=True),
    "swin": Exported(swin, image(1, 3, 56, 56, name="pixel_values"), {"pixel_values": {0: "batch"}}),
    "recurrent": Exported(Recurrent, image(7, 3, 8)),
    "detector": Exported(Detector, image(1, 3, 64, 48), {"x": _SIZE}),
    "decoder": Exported(Decoder, {"x": torch.rand(2, 3, 32), "past": torch.rand(2, 4, 5, 8), "mask": torch.rand(2, 8)}, _of_decoder, dynamo=True),
    "gpt2_dynamo": Exported(gpt2, tokens(2, 10), {"input_ids": _SEQUENCE}, dynamo=True),
    "t5": Exported(t5, {**tokens(1, 10), "decoder_input_ids": tokens(1, 7)["input_ids"]}, {"input_ids": {1: "seq"}, "decoder_input_ids": {1: "target"}}),
    "deberta": Exported(deberta, tokens(1, 12), {"input_ids": _SEQUENCE}),
    "segformer": Exported(segformer, image(1, 3, 64, 64, name="pixel_values"), {"pixel_values": _SIZE}),
}  # fmt: skip
