"""The field's names (PyTorch, Flax, Equinox, Keras, JAX) for what has another name in hkx, or is outside of it."""

from __future__ import annotations

from hkx.errors.advice import OF_MODULES

_NAMES = {
    # Layers
    "`hkx.Linear`": "Dense DenseGeneral LazyLinear FullyConnected fc Affine",
    "`hkx.Einsum`": "Bilinear EinsumDense",
    "`hkx.Conv1D`, `hkx.Conv2D`, `hkx.Conv3D`": "Conv Convolution",
    "`hkx.ConvNDTranspose`": "ConvTranspose Deconv",
    **{f"`hkx.Conv{n}D(channels, kernel_shape)`, for `[N, …, C]`": f"Conv{n}d LazyConv{n}d" for n in (1, 2, 3)},
    **{
        f"`hkx.Conv{n}DTranspose(channels, kernel_shape)`, for `[N, …, C]`": (
            f"ConvTranspose{n}d LazyConvTranspose{n}d ConvTranspose{n}D Deconv{n}D"
        )
        for n in (1, 2, 3)
    },
    "`hkx.DepthwiseConv2D`": "DepthwiseConv",
    "`hkx.SeparableDepthwiseConv2D`": "SeparableConv SeparableConv2D",
    "`hkx.Embed`": "Embedding EmbeddingBag",
    "`hkx.BatchNorm`, for any number of dimensions": (
        "BatchNorm1d BatchNorm2d BatchNorm3d LazyBatchNorm1d LazyBatchNorm2d SyncBatchNorm BatchNormalization"
    ),
    "`hkx.InstanceNorm`, for any number of dimensions": "InstanceNorm1d InstanceNorm2d InstanceNorm3d",
    "`hkx.LayerNorm`": "LayerNormalization",
    "`hkx.MaxPool`, for any number of dimensions": (
        "MaxPool1d MaxPool2d MaxPool3d MaxPooling1D MaxPooling2D MaxPooling3D"
    ),
    "`hkx.AvgPool`, for any number of dimensions": (
        "AvgPool1d AvgPool2d AvgPool3d AveragePooling1D AveragePooling2D AveragePooling3D"
    ),
    "`hkx.AdaptiveAvgPool`, for any number of dimensions": "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d",
    "`jnp.mean(x, axis=(1, 2))`, of images `[N, H, W, C]`": (
        "GlobalAvgPool GlobalAvgPool2d GlobalAveragePooling1D GlobalAveragePooling2D"
    ),
    "`hkx.dropout(key, rate, x, broadcast_dims=…)`": "Dropout1d Dropout2d Dropout3d SpatialDropout1D SpatialDropout2D",
    "`hkx.dropout(hkx.next_rng_key(), rate, x)`": "AlphaDropout DropPath StochasticDepth",
    "`jax.image.resize`": "Upsample Upsampling UpSampling2D interpolate resize PixelShuffle",
    "`jnp.pad`": "ZeroPad2d ReflectionPad2d ReplicationPad2d ConstantPad2d ZeroPadding2D",
    "`lambda x: x`": "Identity",
    "a function, such as `lambda x: x + layer(x)`": "Residual SkipConnection Lambda Add Concatenate",
    "use a Python list or dict of modules": "ModuleList ModuleDict ParameterList ParameterDict List",
    "activations are JAX functions: `jax.nn.relu`, `jax.nn.gelu`, `jnp.tanh`": (
        "ReLU GELU SiLU Tanh Sigmoid Softmax LeakyReLU ELU ReLU6 SELU CELU Softplus Softsign Swish Mish "
        "Hardswish Hardtanh Hardsigmoid LogSigmoid LogSoftmax GLU relu gelu silu tanh sigmoid softmax leaky_relu elu "
        "swish softplus log_softmax F functional Activation activations"
    ),
    # Attention and recurrence
    "`hkx.MultiHeadAttention`": (
        "MultiHeadDotProductAttention MultiheadAttention SelfAttention CrossAttention Attention MHA"
    ),
    "`hkx.GroupedQueryAttention`": "MultiQueryAttention GQA MQA",
    "`jax.nn.dot_product_attention`": "scaled_dot_product_attention dot_product_attention FlashAttention",
    "`hkx.nets.Decoder` is a causal one; `hkx.GroupedQueryAttention`, `hkx.LayerNorm` and `hkx.Linear` make others": (
        "Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer TransformerDecoderLayer "
        "TransformerBlock EncoderLayer DecoderLayer"
    ),
    "`hkx.RotaryEmbedding`": "RoPE Rotary RotaryPositionalEmbedding",
    "a parameter, `hkx.get_parameter(name, [T, D], init=…)`, or `hkx.Embed` of the positions": (
        "PositionalEncoding PositionalEmbedding PositionEmbedding"
    ),
    "`jnp.tril(jnp.ones([T, T], bool))`": (
        "make_causal_mask causal_mask make_attention_mask generate_square_subsequent_mask"
    ),
    "`hkx.LSTM`, and `hkx.dynamic_unroll` for a sequence": "LSTMCell OptimizedLSTMCell RNN",
    "`hkx.GRU`, and `hkx.dynamic_unroll` for a sequence": "GRUCell",
    "`hkx.VanillaRNN`, and `hkx.dynamic_unroll` for a sequence": "RNNCell SimpleRNN SimpleCell ElmanRNN",
    "`hkx.Conv2DLSTM`": "ConvLSTM ConvLSTMCell",
    "`hkx.BatchApply`, or `hkx.vmap`": "TimeDistributed",
    "`hkx.nets.MLP`": "MultiLayerPerceptron FeedForward FFN",
    # Initializers
    "`hkx.initializers.VarianceScaling(1.0, 'fan_avg', 'uniform')`": "glorot_uniform xavier_uniform xavier_uniform_",
    "`hkx.initializers.VarianceScaling(1.0, 'fan_avg', 'truncated_normal')`": (
        "glorot_normal xavier_normal xavier_normal_"
    ),
    "`hkx.initializers.VarianceScaling(2.0, 'fan_in', 'uniform')`": "he_uniform kaiming_uniform kaiming_uniform_",
    "`hkx.initializers.VarianceScaling(2.0, 'fan_in', 'truncated_normal')`": "he_normal kaiming_normal kaiming_normal_",
    "`hkx.initializers.VarianceScaling(1.0, 'fan_in', 'uniform')`": "lecun_uniform",
    "`hkx.initializers.VarianceScaling(1.0, 'fan_in', 'truncated_normal')`": "lecun_normal",
    "`hkx.initializers.Orthogonal`": "orthogonal_ delta_orthogonal",
    "`hkx.initializers.TruncatedNormal`": "trunc_normal_ trunc_normal",
    "`hkx.initializers.RandomNormal`": "normal normal_",
    "`hkx.initializers.RandomUniform`": "uniform uniform_",
    "`hkx.initializers.Constant`, `jnp.zeros` or `jnp.ones`": "zeros_ ones_ constant_ zeros_init ones_init",
    "initializers are in `hkx.initializers`": "init initializer",
    # Parameters, state, keys
    OF_MODULES["register_parameter"]: "Parameter param Param get_variable add_weight create_parameter",
    OF_MODULES["register_buffer"]: "Variable variable Buffer BatchStat",
    "pass a key to `init` and `apply`, and draw from it with `hkx.next_rng_key()`": "Rngs make_rng RngStream",
    "parameters are plain dicts": "freeze unfreeze FrozenDict",
    "every method may create modules: no decorator is needed": "compact nowrap setup",
    "pass parameters, optimiser state and key as arguments, or as fields of your own tuple": "TrainState",
    "`model = hkx.transform(f)`: then `model.init` and `model.apply` are pure functions of parameters": (
        "split merge GraphDef bind Model"
    ),
    "layers are in `hkx` itself, `hkx.Linear`; `jax.nn` has functions": "nn linen nnx layers",
    "`hkx.Module`": "Layer",
    "`hkx.jit` inside of a transformed function, `jax.jit` around `model.apply`": "filter_jit tf_function compile",
    "`hkx.grad` inside of a transformed function, `jax.grad` around a loss that calls `model.apply`": (
        "filter_grad filter_value_and_grad backward autograd"
    ),
    "parameters are dicts: write a new one, or use `jax.tree.map`": "tree_at apply_to_params apply_updates",
    "`hkx.data_structures.partition`": "partition combine is_array",
    "`hkx.LoRALinear`": "LoRA LoraLinear",
    "`hkx.layer_stack`": "Repeated RepeatedLayers StackedLayers scan_layers repeat_blocks",
    "nothing is recorded outside of `jax.grad`; inside, `jax.lax.stop_gradient(x)` stops gradients": (
        "no_grad stop_gradient detach inference_mode"
    ),
    # Outside of hkx
    "losses are functions, from optax or your own": (
        "CrossEntropyLoss MSELoss NLLLoss BCEWithLogitsLoss BCELoss L1Loss HuberLoss SmoothL1Loss KLDivLoss "
        "cross_entropy mse_loss losses loss"
    ),
    "optimisers are functions of the parameters and gradients; `optax` provides them": (
        "optim Optimizer optimizer optimizers Adam AdamW SGD"
    ),
    "arrays are those of JAX: `jax.numpy`": "tensor Tensor zeros ones arange cat stack",
    "random numbers take a key: `jax.random`": "rand randn randint manual_seed PRNG",
    "parameters are a tree of arrays: save them with `np.savez`, pickle or Orbax": (
        "save load save_weights load_weights"
    ),
    "`print(hkx.tabulate(f)(x))`": "summary torchinfo display",
    OF_MODULES["load_state_dict"]: "load_state_dict from_pretrained state_dict",
}

OF_HKX = {name: advice for advice, names in _NAMES.items() for name in names.split()}
