"""Networks."""

from typing import TYPE_CHECKING

from hkx.base.lazy import lazy_exports

if TYPE_CHECKING:
    from hkx.nets.bronet import BroNet as BroNet
    from hkx.nets.bronet import BroNetBlock as BroNetBlock
    from hkx.nets.decoder import Decoder as Decoder
    from hkx.nets.decoder import DecoderCache as DecoderCache
    from hkx.nets.decoder_config import DecoderConfig as DecoderConfig
    from hkx.nets.decoder_config import ExpertsConfig as ExpertsConfig
    from hkx.nets.decoder_config import LatentConfig as LatentConfig
    from hkx.nets.decoder_layer import DecoderLayer as DecoderLayer
    from hkx.nets.decoder_sharding import decoder_sharding_rules as decoder_sharding_rules
    from hkx.nets.exact import in_tiles as in_tiles
    from hkx.nets.generation import Generated as Generated
    from hkx.nets.generation import answer_hidden as answer_hidden
    from hkx.nets.generation import generate as generate
    from hkx.nets.mlp import MLP as MLP
    from hkx.nets.mobilenet import MobileNetV1 as MobileNetV1
    from hkx.nets.qmix import QMixer as QMixer
    from hkx.nets.resnet import ResNet as ResNet
    from hkx.nets.resnet import ResNet18 as ResNet18
    from hkx.nets.resnet import ResNet34 as ResNet34
    from hkx.nets.resnet import ResNet50 as ResNet50
    from hkx.nets.resnet import ResNet101 as ResNet101
    from hkx.nets.resnet import ResNet152 as ResNet152
    from hkx.nets.resnet import ResNet200 as ResNet200
    from hkx.nets.simba import Simba as Simba
    from hkx.nets.simba import SimbaBlock as SimbaBlock
    from hkx.nets.simba_v2 import SimbaV2 as SimbaV2
    from hkx.nets.simba_v2 import SimbaV2Block as SimbaV2Block
    from hkx.nets.simba_v2 import project_to_sphere as project_to_sphere
    from hkx.nets.vqvae import VectorQuantizer as VectorQuantizer
    from hkx.nets.vqvae import VectorQuantizerEMA as VectorQuantizerEMA

# The same by module, which is imported when one of its names is first used.
_EXPORTS = {
    "hkx.nets.bronet": "BroNet BroNetBlock",
    "hkx.nets.decoder": "Decoder DecoderCache",
    "hkx.nets.decoder_config": "DecoderConfig ExpertsConfig LatentConfig",
    "hkx.nets.decoder_layer": "DecoderLayer",
    "hkx.nets.decoder_sharding": "decoder_sharding_rules",
    "hkx.nets.exact": "in_tiles",
    "hkx.nets.generation": "Generated answer_hidden generate",
    "hkx.nets.mlp": "MLP",
    "hkx.nets.mobilenet": "MobileNetV1",
    "hkx.nets.qmix": "QMixer",
    "hkx.nets.resnet": "ResNet ResNet18 ResNet34 ResNet50 ResNet101 ResNet152 ResNet200",
    "hkx.nets.simba": "Simba SimbaBlock",
    "hkx.nets.simba_v2": "SimbaV2 SimbaV2Block project_to_sphere",
    "hkx.nets.vqvae": "VectorQuantizer VectorQuantizerEMA",
}
__getattr__, __dir__, __all__ = lazy_exports(__name__, _EXPORTS, "hkx.errors.glossary:OF_HKX")  # pyright: ignore[reportUnsupportedDunderAll]
