"""Networks."""

from hkx.nets.mlp import MLP as MLP
from hkx.nets.mobilenet import MobileNetV1 as MobileNetV1
from hkx.nets.resnet import ResNet as ResNet
from hkx.nets.resnet import ResNet18 as ResNet18
from hkx.nets.resnet import ResNet34 as ResNet34
from hkx.nets.resnet import ResNet50 as ResNet50
from hkx.nets.resnet import ResNet101 as ResNet101
from hkx.nets.resnet import ResNet152 as ResNet152
from hkx.nets.resnet import ResNet200 as ResNet200
from hkx.nets.vqvae import VectorQuantizer as VectorQuantizer
from hkx.nets.vqvae import VectorQuantizerEMA as VectorQuantizerEMA

__all__ = [
    "MLP",
    "MobileNetV1",
    "ResNet",
    "ResNet18",
    "ResNet34",
    "ResNet50",
    "ResNet101",
    "ResNet152",
    "ResNet200",
    "VectorQuantizer",
    "VectorQuantizerEMA",
]
