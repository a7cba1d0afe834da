"""Networks."""

from hkx.nets.bronet import BroNet as BroNet
from hkx.nets.bronet import BroNetBlock as BroNetBlock
from hkx.nets.decoder import Decoder as Decoder
from hkx.nets.decoder import DecoderCache as DecoderCache
from hkx.nets.decoder_config import DecoderConfig as DecoderConfig
from hkx.nets.decoder_config import ExpertsConfig as ExpertsConfig
from hkx.nets.decoder_config import LatentConfig as LatentConfig
from hkx.nets.decoder_layer import DecoderLayer as DecoderLayer
from hkx.nets.decoder_sharding import decoder_sharding_rules as decoder_sharding_rules
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

__all__ = [
    "MLP",
    "BroNet",
    "BroNetBlock",
    "Decoder",
    "DecoderCache",
    "DecoderConfig",
    "DecoderLayer",
    "ExpertsConfig",
    "Generated",
    "LatentConfig",
    "MobileNetV1",
    "QMixer",
    "ResNet",
    "ResNet18",
    "ResNet34",
    "ResNet50",
    "ResNet101",
    "ResNet152",
    "ResNet200",
    "Simba",
    "SimbaBlock",
    "SimbaV2",
    "SimbaV2Block",
    "VectorQuantizer",
    "VectorQuantizerEMA",
    "answer_hidden",
    "decoder_sharding_rules",
    "generate",
    "project_to_sphere",
]
