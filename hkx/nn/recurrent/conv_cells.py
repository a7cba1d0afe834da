"""Convolutional long short-term memory."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hkx import ConvND, LSTMState, RNNCore
from hkx.arguments import Num, PositiveSize, Size, Sizes
from hkx.errors import InvalidRankError
from hkx.nn.numerics import broadcast
from hkx.nn.recurrent.cells import PairState, add_batch, check_state, leading_fit, lstm_step
from hkx.pad import per_dimension


class ConvNDLSTM(RNNCore):
    """`hkx.LSTM` with convolutions in place of matrix products.

    `i, g, f, o = split(W_i * x_t + W_h * h_{t-1} + b_i + b_h)`, where `*` is a convolution with padding `"SAME"`, and
    the rest is as in `hkx.LSTM`.

    Reference: Shi et al. (2015), "Convolutional LSTM network: a machine learning approach for precipitation
    nowcasting", arXiv:1506.04214.

    Args:
      num_spatial_dims: the number of spatial dimensions.
      input_shape: the spatial shape of the inputs, without channels.
      output_channels: the number of channels of h and c.
      kernel_shape: the size of the kernels, one number or one per dimension.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> from hkx.nn.recurrent.conv_cells import ConvNDLSTM
      >>> def f(x):
      ...     core = ConvNDLSTM(2, input_shape=(8, 8), output_channels=4, kernel_shape=3)
      ...     return core(x, core.initial_state(x.shape[0]))[0]
      >>> model = hkx.transform(f)
      >>> model.apply(model.init(jax.random.key(0), jnp.ones([1, 8, 8, 2])), None, jnp.ones([1, 8, 8, 2])).shape
      (1, 8, 8, 4)
    """

    def __init__(
        self,
        num_spatial_dims: PositiveSize,
        input_shape: Sizes,
        output_channels: Size,
        kernel_shape: Sizes,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.num_spatial_dims = num_spatial_dims
        self.input_shape = per_dimension(input_shape, num_spatial_dims, "input_shape")
        self.output_channels = output_channels
        self.kernel_shape = kernel_shape

    def __call__(self, inputs: Num[jax.Array, "..."], state: PairState) -> tuple[jax.Array, LSTMState]:
        """One step.

        Args:
          inputs: `[B, *input_shape, C]` or `[*input_shape, C]`.
          state: an `LSTMState` of `[B, *input_shape, output_channels]`, or without B.

        Returns:
          The output, of the shape of the state's arrays, and the new state.

        Raises:
          InvalidCoreStateError: if the state is not a pair of arrays, or they have the wrong shape.
          InvalidRankError: if `inputs` has the wrong number of dimensions.
        """
        n = self.num_spatial_dims
        if inputs.ndim not in (n + 1, n + 2):
            raise InvalidRankError(type(self).__name__, "inputs", inputs.shape, (n + 1, n + 2))
        hidden, cell = state
        fits = hidden.ndim in (n + 1, n + 2) and leading_fit(hidden, inputs)
        check_state(fits, self, "state.hidden", hidden, inputs, self.output_channels)
        wanted = *jnp.broadcast_shapes(hidden.shape[:-1], inputs.shape[:-1]), self.output_channels
        fits = broadcast(cell.shape, wanted) is not None
        check_state(fits, self, "state.cell", cell, inputs, self.output_channels)
        arguments = (n, 4 * self.output_channels, self.kernel_shape)
        input_to_hidden = ConvND(*arguments, name="input_to_hidden")
        hidden_to_hidden = ConvND(*arguments, name="hidden_to_hidden")
        new = lstm_step(input_to_hidden(inputs) + hidden_to_hidden(hidden), cell)
        return new.hidden, new

    def initial_state(self, batch_size: Size | None) -> LSTMState:
        """Zeros, `[B, *input_shape, output_channels]`, or without B."""
        shape = (*self.input_shape, self.output_channels)
        return add_batch(LSTMState(jnp.zeros(shape), jnp.zeros(shape)), batch_size)


class _OfRank(ConvNDLSTM):
    """Takes the number of spatial dimensions from a class attribute instead of an argument."""

    num_spatial_dims: int

    def __init__(self, input_shape: Sizes, output_channels: Size, kernel_shape: Sizes, name: str | None = None):
        super().__init__(self.num_spatial_dims, input_shape, output_channels, kernel_shape, name)


class Conv1DLSTM(_OfRank):
    """`hkx.LSTM` with one-dimensional convolutions in place of matrix products.

    The inputs are `[B, W, C]`.

    Reference: Shi et al. (2015), "Convolutional LSTM network: a machine learning approach for precipitation
    nowcasting", arXiv:1506.04214.

    Args:
      input_shape: the spatial shape of the inputs, without channels.
      output_channels: the number of channels of the state and the output.
      kernel_shape: the size of the kernels, one number or one per dimension.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     core = hkx.Conv1DLSTM(input_shape=(4,), output_channels=3, kernel_shape=3)
      ...     return core(x, core.initial_state(1))[0]
      >>> model = hkx.transform(f)
      >>> model.apply(model.init(jax.random.key(0), jnp.ones([1, 4, 2])), None, jnp.ones([1, 4, 2])).shape
      (1, 4, 3)
    """

    num_spatial_dims = 1


class Conv2DLSTM(_OfRank):
    """`hkx.LSTM` with two-dimensional convolutions in place of matrix products.

    The inputs are `[B, H, W, C]`.

    Reference: Shi et al. (2015), "Convolutional LSTM network: a machine learning approach for precipitation
    nowcasting", arXiv:1506.04214.

    Args:
      input_shape: the spatial shape of the inputs, without channels.
      output_channels: the number of channels of the state and the output.
      kernel_shape: the size of the kernels, one number or one per dimension.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     core = hkx.Conv2DLSTM(input_shape=(4, 4), output_channels=3, kernel_shape=3)
      ...     return core(x, core.initial_state(1))[0]
      >>> model = hkx.transform(f)
      >>> model.apply(model.init(jax.random.key(0), jnp.ones([1, 4, 4, 2])), None, jnp.ones([1, 4, 4, 2])).shape
      (1, 4, 4, 3)
    """

    num_spatial_dims = 2


class Conv3DLSTM(_OfRank):
    """`hkx.LSTM` with three-dimensional convolutions in place of matrix products.

    The inputs are `[B, D, H, W, C]`.

    Reference: Shi et al. (2015), "Convolutional LSTM network: a machine learning approach for precipitation
    nowcasting", arXiv:1506.04214.

    Args:
      input_shape: the spatial shape of the inputs, without channels.
      output_channels: the number of channels of the state and the output.
      kernel_shape: the size of the kernels, one number or one per dimension.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     core = hkx.Conv3DLSTM(input_shape=(4, 4, 4), output_channels=3, kernel_shape=3)
      ...     return core(x, core.initial_state(1))[0]
      >>> model = hkx.transform(f)
      >>> model.apply(model.init(jax.random.key(0), jnp.ones([1, 4, 4, 4, 2])), None, jnp.ones([1, 4, 4, 4, 2])).shape
      (1, 4, 4, 4, 3)
    """

    num_spatial_dims = 3
