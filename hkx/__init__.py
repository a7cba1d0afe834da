"""hkx: object-oriented neural networks that become pure functions.

A function that makes and calls modules is turned into a pair of pure functions: `init` creates the parameters, `apply`
computes with them.

    transform, transform_with_state, multi_transform     a function -> init and apply
    Module, get_parameter, get_state, set_state          your own layers
    Linear, Conv2D, BatchNorm, MultiHeadAttention, ...   layers; `hkx.nets` has networks
    next_rng_key, PRNGSequence, as_key, with_rng         random keys
    scan, cond, grad, remat, vmap, layer_stack, ...      JAX's transforms and control flow, where modules are called
    tabulate, to_dot, capture_intermediates              inspecting a model
    custom_getter, intercept_methods, name_scope, ...    hooks and names

    arguments          checks for your own layers   config             settings
    data_structures    splitting parameters         errors             all errors by name
    experimental       as in Haiku                  initializers       initial values of parameters
    interop            PyTorch's weights, Flax      mixed_precision    which dtypes modules compute in
    nets               MLP, ResNet, Simba, QMIX, …  pad                padding of convolutions
    sharding           models on many devices       testing            tests of modules

`help(hkx.transform)` and so on describe each name; `dir(hkx)` lists all of them.

Example:
  >>> import hkx, jax, jax.numpy as jnp
  >>> def network(x):
  ...     return hkx.nets.MLP([64, 10])(x)
  >>> model = hkx.transform(network)
  >>> x = jnp.ones([8, 28])
  >>> params = model.init(jax.random.key(0), x)
  >>> jax.jit(model.apply)(params, None, x).shape
  (8, 10)
"""

# ruff: noqa: I001
from typing import TYPE_CHECKING

from hkx.base.lazy import lazy_exports

if TYPE_CHECKING:
    # The transforms
    from hkx.init.transform import transform as transform
    from hkx.init.transform import transform_with_state as transform_with_state
    from hkx.core.transform import Transformed as Transformed
    from hkx.core.transform import TransformedWithState as TransformedWithState
    from hkx.core.transform import running_init as running_init
    from hkx.core.transform import from_example as from_example
    from hkx.context import new_context as new_context
    from hkx.multi import MultiTransformed as MultiTransformed
    from hkx.multi import MultiTransformedWithState as MultiTransformedWithState
    from hkx.multi import multi_transform as multi_transform
    from hkx.multi import multi_transform_with_state as multi_transform_with_state
    from hkx.multi import without_apply_rng as without_apply_rng
    from hkx.multi import without_state as without_state
    from hkx.multi import with_empty_state as with_empty_state

    # JAX transforms and control flow inside a transformed function
    from hkx.lift.crossing import Carry as Carry
    from hkx.lift.purify import Pure as Pure
    from hkx.lift.purify import purify as purify
    from hkx.lift.branches import cond as cond
    from hkx.lift.branches import switch as switch
    from hkx.lift.control import associative_scan as associative_scan
    from hkx.lift.control import fori_loop as fori_loop
    from hkx.lift.control import map as map
    from hkx.lift.control import scan as scan
    from hkx.lift.control import while_loop as while_loop
    from hkx.lift.batching import vmap as vmap
    from hkx.lift.custom_rules import custom_jvp as custom_jvp
    from hkx.lift.custom_rules import custom_vjp as custom_vjp
    from hkx.lift.shard_map import shard_map as shard_map
    from hkx.tools.lora_params import lora_params as lora_params
    from hkx.tools.lora_params import merge_lora as merge_lora
    from hkx.tools.stack_params import stack_params as stack_params
    from hkx.tools.stack_params import unstack_params as unstack_params
    from hkx.lift.layer_stack import LayerStackTransparencyMapping as LayerStackTransparencyMapping
    from hkx.lift.layer_stack import layer_stack as layer_stack
    from hkx.lift.lift import LiftWithStateUpdater as LiftWithStateUpdater
    from hkx.lift.lift import lift as lift
    from hkx.lift.lift import lift_with_state as lift_with_state
    from hkx.lift.lift import transparent_lift as transparent_lift
    from hkx.lift.lift import transparent_lift_with_state as transparent_lift_with_state
    from hkx.lift.wrappers import checkpoint as checkpoint
    from hkx.lift.wrappers import eval_shape as eval_shape
    from hkx.lift.wrappers import grad as grad
    from hkx.lift.wrappers import jit as jit
    from hkx.lift.wrappers import jvp as jvp
    from hkx.lift.wrappers import linearize as linearize
    from hkx.lift.wrappers import remat as remat
    from hkx.lift.wrappers import value_and_grad as value_and_grad
    from hkx.lift.wrappers import vjp as vjp

    # Modules, parameters and state
    from hkx.core.module import Module as Module
    from hkx.adapters import Deferred as Deferred
    from hkx.adapters import to_module as to_module
    from hkx.core.store import get_parameter as get_parameter
    from hkx.core.store import get_params as get_params
    from hkx.core.store import get_state as get_state
    from hkx.core.store import set_state as set_state
    from hkx.core.store import get_initial_state as get_initial_state
    from hkx.core.store import get_current_state as get_current_state

    # Names
    from hkx.core.naming import current_name as current_name
    from hkx.core.naming import force_name as force_name
    from hkx.core.naming import name_like as name_like
    from hkx.core.naming import name_scope as name_scope
    from hkx.core.naming import transparent as transparent

    # Random keys
    from hkx.core.rng import PRNGSequence as PRNGSequence
    from hkx.base.keys import as_key as as_key
    from hkx.core.rng import next_rng_key as next_rng_key
    from hkx.core.rng import next_rng_keys as next_rng_keys
    from hkx.core.rng import maybe_next_rng_key as maybe_next_rng_key
    from hkx.core.rng import reserve_rng_keys as reserve_rng_keys
    from hkx.core.rng import with_rng as with_rng
    from hkx.core.rng import maybe_get_rng_sequence_state as maybe_get_rng_sequence_state
    from hkx.core.rng import replace_rng_sequence_state as replace_rng_sequence_state

    # Hooks
    from hkx.core.hooks import DO_NOT_STORE as DO_NOT_STORE
    from hkx.core.hooks import GetterContext as GetterContext
    from hkx.core.hooks import MethodContext as MethodContext
    from hkx.core.hooks import SetterContext as SetterContext
    from hkx.core.hooks import custom_creator as custom_creator
    from hkx.core.hooks import custom_getter as custom_getter
    from hkx.core.hooks import custom_setter as custom_setter
    from hkx.core.hooks import intercept_methods as intercept_methods

    # Types
    from hkx.base.types import ModuleProtocol as ModuleProtocol
    from hkx.base.types import MutableParams as MutableParams
    from hkx.base.types import MutableState as MutableState
    from hkx.base.types import Params as Params
    from hkx.base.types import PRNGKey as PRNGKey
    from hkx.base.types import State as State
    from hkx.base.types import SupportsCall as SupportsCall

    # Layers
    from hkx.nn.activation import PReLU as PReLU
    from hkx.nn.adaptive_pool import AdaptiveAvgPool as AdaptiveAvgPool
    from hkx.nn.attention import MultiHeadAttention as MultiHeadAttention
    from hkx.nn.batch_apply import BatchApply as BatchApply
    from hkx.nn.batch_apply import expand_apply as expand_apply
    from hkx.nn.causal_attention import AttentionCache as AttentionCache
    from hkx.nn.causal_attention import CausalAttention as CausalAttention
    from hkx.nn.conv import Conv1D as Conv1D
    from hkx.nn.conv import Conv2D as Conv2D
    from hkx.nn.conv import Conv3D as Conv3D
    from hkx.nn.conv import ConvND as ConvND
    from hkx.nn.conv_transpose import Conv1DTranspose as Conv1DTranspose
    from hkx.nn.conv_transpose import Conv2DTranspose as Conv2DTranspose
    from hkx.nn.conv_transpose import Conv3DTranspose as Conv3DTranspose
    from hkx.nn.conv_transpose import ConvNDTranspose as ConvNDTranspose
    from hkx.nn.depthwise_conv import DepthwiseConv1D as DepthwiseConv1D
    from hkx.nn.depthwise_conv import DepthwiseConv2D as DepthwiseConv2D
    from hkx.nn.depthwise_conv import DepthwiseConv3D as DepthwiseConv3D
    from hkx.nn.depthwise_conv import SeparableDepthwiseConv2D as SeparableDepthwiseConv2D
    from hkx.nn.dropout import Dropout as Dropout
    from hkx.nn.einsum import Einsum as Einsum
    from hkx.nn.embed import Embed as Embed
    from hkx.nn.embed import EmbedLookupStyle as EmbedLookupStyle
    from hkx.nn.functional import dropout as dropout
    from hkx.nn.functional import multinomial as multinomial
    from hkx.nn.functional import one_hot as one_hot
    from hkx.nn.gated_mlp import GatedMLP as GatedMLP
    from hkx.nn.gated_mlp import MixtureOfExperts as MixtureOfExperts
    from hkx.nn.grouped_attention import GroupedQueryAttention as GroupedQueryAttention
    from hkx.nn.grouped_attention import KeyValueCache as KeyValueCache
    from hkx.nn.latent_attention import LatentAttention as LatentAttention
    from hkx.nn.linear import Bias as Bias
    from hkx.nn.linear import Linear as Linear
    from hkx.nn.linear import Sequential as Sequential
    from hkx.nn.lora import LoRALinear as LoRALinear
    from hkx.nn.norm.batch import BatchNorm as BatchNorm
    from hkx.nn.norm.batch import BatchRenorm as BatchRenorm
    from hkx.nn.norm.group import GroupNorm as GroupNorm
    from hkx.nn.norm.layer import InstanceNorm as InstanceNorm
    from hkx.nn.norm.layer import LayerNorm as LayerNorm
    from hkx.nn.norm.moving_average import EMAParamsTree as EMAParamsTree
    from hkx.nn.norm.moving_average import ExponentialMovingAverage as ExponentialMovingAverage
    from hkx.nn.norm.rms import RMSNorm as RMSNorm
    from hkx.nn.norm.spectral import SNParamsTree as SNParamsTree
    from hkx.nn.norm.spectral import SpectralNorm as SpectralNorm
    from hkx.nn.norm.weight import WeightNorm as WeightNorm
    from hkx.nn.pool import AvgPool as AvgPool
    from hkx.nn.pool import MaxPool as MaxPool
    from hkx.nn.pool import avg_pool as avg_pool
    from hkx.nn.pool import max_pool as max_pool
    from hkx.nn.recurrent.cells import GRU as GRU
    from hkx.nn.recurrent.cells import IdentityCore as IdentityCore
    from hkx.nn.recurrent.cells import LSTM as LSTM
    from hkx.nn.recurrent.cells import LSTMState as LSTMState
    from hkx.nn.recurrent.cells import RNNCore as RNNCore
    from hkx.nn.recurrent.cells import VanillaRNN as VanillaRNN
    from hkx.nn.recurrent.conv_cells import Conv1DLSTM as Conv1DLSTM
    from hkx.nn.recurrent.conv_cells import Conv2DLSTM as Conv2DLSTM
    from hkx.nn.recurrent.conv_cells import Conv3DLSTM as Conv3DLSTM
    from hkx.nn.recurrent.deep import DeepRNN as DeepRNN
    from hkx.nn.recurrent.deep import ResetCore as ResetCore
    from hkx.nn.recurrent.deep import deep_rnn_with_skip_connections as deep_rnn_with_skip_connections
    from hkx.nn.recurrent.unroll import Bidirectional as Bidirectional
    from hkx.nn.recurrent.unroll import dynamic_unroll as dynamic_unroll
    from hkx.tracing import traced_once as traced_once
    from hkx.unroll import static_unroll as static_unroll
    from hkx.nn.reshape import Flatten as Flatten
    from hkx.nn.reshape import Reshape as Reshape
    from hkx.nn.rotary import RotaryEmbedding as RotaryEmbedding
    from hkx.nn.spatial import get_channel_index as get_channel_index

    # Inspecting a model
    from hkx.tools.capture import capture_intermediates as capture_intermediates
    from hkx.tools.graph import abstract_to_dot as abstract_to_dot
    from hkx.tools.graph import to_dot as to_dot
    from hkx.tools.summary import eval_summary as eval_summary
    from hkx.tools.summary import tabulate as tabulate

    # Submodules
    from hkx import arguments as arguments
    from hkx import config as config
    from hkx import data_structures as data_structures
    from hkx import errors as errors
    from hkx import experimental as experimental
    from hkx import initializers as initializers
    from hkx import interop as interop
    from hkx import mixed_precision as mixed_precision
    from hkx import nets as nets
    from hkx import pad as pad
    from hkx import sharding as sharding
    from hkx import testing as testing

# The same names by module, which is imported when one of them is first used.
_EXPORTS = {
    # The transforms
    "hkx.core.transform": "Transformed TransformedWithState running_init from_example",
    "hkx.init.transform": "transform transform_with_state",
    "hkx.context": "new_context",
    "hkx.multi": (
        "MultiTransformed MultiTransformedWithState multi_transform multi_transform_with_state without_apply_rng "
        "without_state with_empty_state"
    ),
    # JAX transforms and control flow inside a transformed function
    "hkx.lift.crossing": "Carry",
    "hkx.lift.purify": "Pure purify",
    "hkx.lift.branches": "cond switch",
    "hkx.lift.control": "associative_scan fori_loop map scan while_loop",
    "hkx.lift.batching": "vmap",
    "hkx.lift.custom_rules": "custom_jvp custom_vjp",
    "hkx.lift.shard_map": "shard_map",
    "hkx.tools.lora_params": "lora_params merge_lora",
    "hkx.tools.stack_params": "stack_params unstack_params",
    "hkx.lift.layer_stack": "LayerStackTransparencyMapping layer_stack",
    "hkx.lift.lift": "LiftWithStateUpdater lift lift_with_state transparent_lift transparent_lift_with_state",
    "hkx.lift.wrappers": "checkpoint eval_shape grad jit jvp linearize remat value_and_grad vjp",
    "hkx.tracing": "traced_once",
    # Modules, parameters and state
    "hkx.core.module": "Module",
    "hkx.adapters": "Deferred to_module",
    "hkx.core.store": "get_parameter get_params get_state set_state get_initial_state get_current_state",
    # Names
    "hkx.core.naming": "current_name force_name name_like name_scope transparent",
    # Random keys
    "hkx.base.keys": "as_key",
    "hkx.core.rng": (
        "PRNGSequence next_rng_key next_rng_keys maybe_next_rng_key reserve_rng_keys with_rng "
        "maybe_get_rng_sequence_state replace_rng_sequence_state"
    ),
    # Hooks
    "hkx.core.hooks": (
        "DO_NOT_STORE GetterContext MethodContext SetterContext custom_creator custom_getter custom_setter "
        "intercept_methods"
    ),
    # Types
    "hkx.base.types": "ModuleProtocol MutableParams MutableState PRNGKey Params State SupportsCall",
    # Layers
    "hkx.nn.activation": "PReLU",
    "hkx.nn.adaptive_pool": "AdaptiveAvgPool",
    "hkx.nn.attention": "MultiHeadAttention",
    "hkx.nn.batch_apply": "BatchApply expand_apply",
    "hkx.nn.causal_attention": "AttentionCache CausalAttention",
    "hkx.nn.conv": "Conv1D Conv2D Conv3D ConvND",
    "hkx.nn.conv_transpose": "Conv1DTranspose Conv2DTranspose Conv3DTranspose ConvNDTranspose",
    "hkx.nn.depthwise_conv": "DepthwiseConv1D DepthwiseConv2D DepthwiseConv3D SeparableDepthwiseConv2D",
    "hkx.nn.dropout": "Dropout",
    "hkx.nn.einsum": "Einsum",
    "hkx.nn.embed": "Embed EmbedLookupStyle",
    "hkx.nn.functional": "dropout multinomial one_hot",
    "hkx.nn.gated_mlp": "GatedMLP MixtureOfExperts",
    "hkx.nn.grouped_attention": "GroupedQueryAttention KeyValueCache",
    "hkx.nn.latent_attention": "LatentAttention",
    "hkx.nn.linear": "Bias Linear Sequential",
    "hkx.nn.lora": "LoRALinear",
    "hkx.nn.norm.batch": "BatchNorm BatchRenorm",
    "hkx.nn.norm.group": "GroupNorm",
    "hkx.nn.norm.layer": "InstanceNorm LayerNorm",
    "hkx.nn.norm.moving_average": "EMAParamsTree ExponentialMovingAverage",
    "hkx.nn.norm.rms": "RMSNorm",
    "hkx.nn.norm.spectral": "SNParamsTree SpectralNorm",
    "hkx.nn.norm.weight": "WeightNorm",
    "hkx.nn.pool": "AvgPool MaxPool avg_pool max_pool",
    "hkx.nn.recurrent.cells": "GRU IdentityCore LSTM LSTMState RNNCore VanillaRNN",
    "hkx.nn.recurrent.conv_cells": "Conv1DLSTM Conv2DLSTM Conv3DLSTM",
    "hkx.nn.recurrent.deep": "DeepRNN ResetCore deep_rnn_with_skip_connections",
    "hkx.nn.recurrent.unroll": "Bidirectional dynamic_unroll",
    "hkx.unroll": "static_unroll",
    "hkx.nn.reshape": "Flatten Reshape",
    "hkx.nn.rotary": "RotaryEmbedding",
    "hkx.nn.spatial": "get_channel_index",
    # Inspecting a model
    "hkx.tools.capture": "capture_intermediates",
    "hkx.tools.graph": "abstract_to_dot to_dot",
    "hkx.tools.summary": "eval_summary tabulate",
    # Submodules
    "hkx": (
        "arguments config data_structures errors experimental initializers interop mixed_precision nets pad sharding "
        "testing"
    ),
}
__getattr__, __dir__, __all__ = lazy_exports(__name__, _EXPORTS, "hkx.errors.glossary:OF_HKX")  # pyright: ignore[reportUnsupportedDunderAll]
