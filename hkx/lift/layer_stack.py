"""`layer_stack`: a layer that is repeated with separate parameters, and compiled once."""

from __future__ import annotations

import abc
import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp

from hkx.arguments import checked_flag, checked_function, checked_integer
from hkx.base.entries import Tree, add, below, under, walk
from hkx.base.key_arrays import is_partitionable
from hkx.base.signatures import like, with_keyword
from hkx.base.trees import own_tree
from hkx.core.frame import Frame, Phase, current_frame, local, paths
from hkx.core.making import Eager
from hkx.core.module import Module
from hkx.errors.core import MissingParameterError, MissingStateError, ShapeMismatchError
from hkx.errors.lift import LayerFunctionError, LayerInputsError, MappedSizeError
from hkx.init.recording import type_like
from hkx.lift.captured import Captured, record
from hkx.lift.checks import checked_unroll
from hkx.lift.crossing import NOTHING, Carry, Crossing, creating, draws_keys, only_looking
from hkx.lift.lift import note_all_below, store_below
from hkx.lift.loops import check_carry, settled, varying_like
from hkx.lift.probe import Program

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@runtime_checkable
class LayerStackTransparencyMapping(Protocol):
    """The names of the separate layers of a transparent `layer_stack`; subclass it to define them.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> class Numbered(hkx.LayerStackTransparencyMapping):
      ...     def stacked_to_flat(self, stacked_module_name, scan_idx):
      ...         return f"layer_{scan_idx}_{stacked_module_name}"
      ...     def flat_to_stacked(self, unstacked_module_name):
      ...         if not unstacked_module_name.startswith("layer_"):
      ...             return None
      ...         _, index, name = unstacked_module_name.split("_", 2)
      ...         return name, int(index)
      >>> def f(x):
      ...     return hkx.layer_stack(2, transparent=True, transparency_map=Numbered())(lambda x: hkx.Linear(3)(x))(x)
      >>> sorted(hkx.transform(f).init(jax.random.key(0), jnp.ones([1, 3])))
      ['layer_0_linear', 'layer_1_linear']
    """

    @abc.abstractmethod
    def stacked_to_flat(self, stacked_module_name: str, scan_idx: int) -> str:
        """The name for layer `scan_idx` of the module that is called `stacked_module_name` in the stack."""

    @abc.abstractmethod
    def flat_to_stacked(self, unstacked_module_name: str) -> tuple[str, int] | None:
        """The name in the stack and the index of the layer, or None for a module that is not part of the stack."""


class Repeated(Protocol[R_co]):
    """A repeated layer."""

    def __call__(self, *args: Any, reverse: bool = False) -> R_co:
        """Applies the layers, from the last to the first with `reverse`."""
        ...


def layer_stack(
    num_layers: int,
    with_per_layer_inputs: bool = False,
    unroll: int | bool = 1,
    pass_reverse_to_layer_fn: bool = False,
    transparent: bool = False,
    transparency_map: LayerStackTransparencyMapping | None = None,
    name: str | None = None,
    *,
    remat: bool | Callable[..., bool] = False,
) -> Callable[[Callable[..., R]], Repeated[R]]:
    """Repeats a layer, each time with its own parameters, states and keys; the layer is compiled only once.

    Computes `for i in range(num_layers): x = layer_i(x)`. The parameters of all layers are stored together, stacked
    along a leading axis `[num_layers, ...]`. Each layer has its own initial values.

    Args:
      num_layers: the number of layers.
      with_per_layer_inputs: whether the layer is `x, z = layer(x, *ys)`, where each y is a slice of an input with the
        leading axis `num_layers`, and the z are returned stacked.
      unroll: how many layers one step of the compiled loop contains.
      pass_reverse_to_layer_fn: whether the layer gets the keyword argument `reverse` that the stack is called with.
      transparent: whether the parameters are stored layer by layer, as with a Python loop.
      transparency_map: if `transparent`, the names of the layers.
      name: the name under which the parameters are stored; by default `__layer_stack_no_per_layer` or
        `__layer_stack_with_per_layer`.
      remat: True, or a policy of `jax.checkpoint_policies`, computes each layer again for the gradient.

    Returns:
      A decorator. The decorated function takes the arguments of the layer, and `reverse=True` to run from the last
      layer to the first.

    Raises:
      LayerFunctionError: if the function's first argument is `*args` (without per-layer inputs), or if `transparent`
        is used without `transparency_map`.
      CarryMismatchError: if the structure, shapes or dtypes of the layer's result differ from those of its argument.
      LayerInputsError: if a per-layer input has another length.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     block = lambda x: x + hkx.Linear(4)(jax.nn.relu(x))
      ...     return hkx.layer_stack(12, name="blocks")(block)(x)
      >>> params = hkx.transform(f).init(jax.random.key(0), jnp.ones([1, 4]))
      >>> jax.tree.map(jnp.shape, params)
      {'blocks/linear': {'b': (12, 4), 'w': (12, 4, 4)}}
    """
    with_per_layer_inputs = checked_flag(with_per_layer_inputs, "with_per_layer_inputs", "hkx.layer_stack")
    reverses = checked_flag(pass_reverse_to_layer_fn, "pass_reverse_to_layer_fn", "hkx.layer_stack")
    remat = remat if callable(remat) else checked_flag(remat, "remat", "hkx.layer_stack")
    transparent = checked_flag(transparent, "transparent", "hkx.layer_stack")
    if transparent and transparency_map is None:
        raise LayerFunctionError("`transparent=True` needs a `transparency_map`, which names what each layer has.")
    num_layers, rounds = checked_integer(num_layers, "num_layers"), checked_unroll(unroll)
    default = f"__layer_stack_{'with' if with_per_layer_inputs else 'no'}_per_layer"
    own_name: Any = name if hasattr(name, "shape") else name or default

    def decorate(f: Callable[..., R]) -> Repeated[R]:
        checked_function(f, "hkx.layer_stack", "f")
        if not with_per_layer_inputs:
            _check_signature(f)
        mapping = transparency_map if transparent else None
        layer = _Layer(f, num_layers, with_per_layer_inputs, rounds, reverses, remat, mapping)

        @like(f, with_keyword("reverse", False, bool))
        def stacked(*args: Any, reverse: bool = False) -> Any:
            if not local.frames:
                return layer.scan(({}, {}), None, *layer.split(args), reverse)[0]
            if transparent:
                return _run(layer, args, reverse)
            return LayerStack(layer, own_name)(*args, **({"reverse": True} if reverse else {}))

        return stacked

    return decorate


def _check_signature(f: Callable[..., Any]) -> None:
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return
    # `*args` may follow a named argument, as in `hkx.Sequential`.
    if parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
        raise LayerFunctionError(
            "The function `f` should not have any `varargs`: `*args` does not say how many arrays pass from layer to "
            "layer. Name them, as in `def f(x, y)`."
        )


class LayerStack(Module):
    """Gives the stack its name scope, which contains the modules of the layers."""

    def __init__(self, layer: _Layer, name: str):
        super().__init__(name)
        self._layer = layer

    def __call__(self, *args: Any, reverse: bool = False) -> Any:
        return _run(self._layer, args, reverse)


def stack(trees: list[Any]) -> Any:
    """Stacks trees of the same structure along a new leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _held(params: Tree, state: Tree, key: Any) -> Carry:
    """The carry with which a layer begins."""
    return Carry(params, state, state, None if key is None else (key, ()))


def _next_key(frame: Frame) -> Any:
    return frame.rngs[-1].next() if draws_keys(frame) else None


def _layer_keys(key: Any, num: int) -> tuple[Any, Any]:
    """For each layer, a key for its parameters and one for its first call, in a chain of splits."""
    return (None, None) if key is None else jax.lax.scan(_split_off, key, None, length=num)[1]


def _split_off(key: Any, _: None) -> Any:  # one function, so that JAX compiles the scan once
    own, left, call = jax.random.split(key, 3)
    return left, (own, call)


def _run(layer: _Layer, args: Any, reverse: bool) -> Any:
    frame = current_frame("hkx.layer_stack")
    prefix = frame.scope.prefix
    carried, inputs = layer.split(args)
    init_key, call_key = _next_key(frame), _next_key(frame)
    call_keys = None if call_key is None else jax.random.split(call_key, layer.num_layers)
    keys = _layer_keys(init_key if creating(frame) else None, layer.num_layers)
    if creating(frame):
        created = layer.create(frame, prefix, keys, carried, inputs, reverse)
        store_below(frame, prefix, layer.as_stored(created.params), layer.as_stored(created.initial_state))
    params = layer.loaded("parameter", prefix, frame.params)
    state = layer.loaded("state", prefix, frame.state)
    draws = local.draws
    out, changed, captured = layer.scan((params, state), call_keys, carried, inputs, reverse)
    if creating(frame):
        local.draws += local.draws - draws  # dm-haiku calls each layer again when it creates the next one
        if changed and call_keys is not None:  # and keeps the states of that call, which has its own keys
            with only_looking():
                changed = layer.scan((params, state), keys[1], carried, inputs, reverse)[1]
    for label, value in captured:
        for bundle, _, of_layer in walk(layer.as_stored({label.module: {label.method: value}})):
            record(label._replace(module=f"{prefix}{bundle}"), of_layer)
    changed = layer.as_stored(changed)
    store_below(frame, prefix, {}, changed)
    note_all_below(frame, prefix)
    if creating(frame):
        # As in Haiku, the initial states are those after the call.
        add(frame.initial_state, under(prefix, changed))
    return out


def _type_of_first(stacked: Any) -> Any:
    """The type of the first of some stacked arrays."""
    aval = jax.typeof(stacked)
    return type_like(aval, aval.shape[1:], aval.dtype)


@dataclasses.dataclass(repr=False, eq=False)
class _Layer:
    """The repeated function and its options. With a `mapping`, parameters are stored layer by layer under its names."""

    f: Callable[..., Any]
    num_layers: int
    with_inputs: bool
    unroll: int | bool
    pass_reverse: bool
    remat: bool | Callable[..., bool]
    mapping: LayerStackTransparencyMapping | None

    def __repr__(self) -> str:
        return f"{getattr(self.f, '__name__', type(self.f).__name__)} × {self.num_layers}"

    def loaded(self, kind: str, prefix: str, tree: Tree) -> Tree:
        """Stacks the stored entries of this stack, which may come from a model with another number of layers."""
        own = below(prefix, tree)
        if self.mapping is not None:
            own = self._stacked(kind, prefix, own)
        for bundle, name, entry in walk(own):
            for shape in map(jnp.shape, jax.tree.leaves(entry)):
                if shape[:1] != (self.num_layers,):
                    raise MappedSizeError(kind, f"{prefix}{bundle}/{name}", shape, 0, self.num_layers)
        return own

    def _stacked(self, kind: str, prefix: str, tree: Tree) -> Tree:
        """Stacks entries that are stored layer by layer. Raises an error if a layer lacks one that another has."""
        assert self.mapping is not None
        layers: dict[str, dict[str, dict[int, Any]]] = {}
        for flat, entries in tree.items():
            place = self.mapping.flat_to_stacked(flat)
            if place is None:
                continue
            module, layer = place
            for name, value in entries.items():
                by_layer = layers.setdefault(module, {}).setdefault(name, {})
                if by_layer.setdefault(layer, value) is not value:
                    raise LayerFunctionError(
                        f"`flat_to_stacked` takes {flat!r} for layer {layer} of {module!r}, as it does another module: "
                        "names of different layers and modules must differ."
                    )
        for module, by_name in layers.items():
            for name, by_layer in by_name.items():
                like = next(iter(by_layer.values()))
                for i in range(self.num_layers):
                    shape, expected = (getattr(x, "shape", ()) for x in (by_layer.get(i), like))
                    if i in by_layer and (shape == expected or kind == "state"):
                        continue
                    path = f"{prefix}{self.mapping.stacked_to_flat(module, i)}/{name}"
                    if i in by_layer:
                        raise ShapeMismatchError(path, shape, expected, jnp.result_type(like), False)
                    if kind == "state":
                        raise MissingStateError(path, paths(tree))
                    raise MissingParameterError(path, expected, jnp.result_type(like), paths(tree))
        return {
            module: {name: stack([by_layer[i] for i in sorted(by_layer)]) for name, by_layer in by_name.items()}
            for module, by_name in layers.items()
        }

    def as_stored(self, tree: Tree) -> Tree:
        """Converts stacked entries to the form in which they are stored."""
        if self.mapping is None:
            return tree
        out: Tree = {}
        for name, entries in tree.items():
            for i in range(self.num_layers):
                flat = self.mapping.stacked_to_flat(name, i)
                if flat in out:
                    raise LayerFunctionError(
                        f"`stacked_to_flat` gives {name!r} the name {flat!r}, which another layer or module has "
                        "already. Was this module created outside of the layer?"
                    )
                out[flat] = jax.tree.map(lambda a, i=i: a[i], entries)
        return out

    def split(self, args: Any) -> tuple[Any, tuple[Any, ...]]:
        """The values that pass from layer to layer, and the per-layer inputs."""
        if not self.with_inputs:
            return args, ()
        x, *inputs = args
        for leaf in jax.tree.leaves(inputs):
            if jnp.ndim(leaf) == 0 or jnp.shape(leaf)[0] != self.num_layers:
                raise LayerInputsError(jnp.shape(leaf), self.num_layers)
        return (x,), tuple(inputs)

    def __call__(self, carried: Any, inputs: Any, reverse: bool) -> tuple[Any, Any]:
        """Calls one layer. Returns what it passes on to the next layer, and its per-layer output."""
        out = self.f(*carried, *inputs, **({"reverse": reverse} if self.pass_reverse else {}))
        if not self.with_inputs:
            return (out if len(carried) > 1 else (out,)), None
        if not isinstance(out, (tuple, list)) or len(out) != 2:
            raise LayerFunctionError(
                "With `with_per_layer_inputs=True` the layer must return a pair `(x, z)` (z may be None), but returned "
                f"{type(out).__name__}: too many values to unpack (expected 2), or too few."
            )
        return (out[0],), out[1]

    def create(
        self, frame: Frame, prefix: str, keys: tuple[Any, Any], carried: Any, inputs: Any, reverse: bool
    ) -> Carry:
        """Creates the parameters and states of all layers, stacked, with separate initial values."""
        lifted = (frame.lifted_prefix or "") + prefix
        crossing: Crossing[..., Any] = Crossing(self, "hkx.layer_stack", phase=Phase.OPEN, lifted_name=lifted)

        def one(key: Any, inputs: Any, carried: Any) -> Carry:
            _, new = crossing.call(_held({}, {}, key), (carried, inputs, reverse))
            return new._replace(rng=None, state={}, captured=Captured())

        first = jax.tree.map(_type_of_first, (keys[0], inputs))
        draws = local.draws
        program = Program(one, *first, carried)
        params_do = program.uses(2, lambda made: made.params)
        states_do = program.uses(2, lambda made: made.initial_state)
        if params_do:  # as in dm-haiku, the direction does not matter
            created = self._create_in_turn(program, keys, carried, inputs, reverse)
        else:
            make: Callable[..., Carry] = program
            if isinstance(frame.maker, Eager):  # immediately, because NumPy arrays may change
                make, local.draws = one, draws  # tracing the program does not count
                if not states_do:
                    del program  # as long as it exists, JAX reuses its copies of 64-bit arrays
            each, slices = (lambda slices: make(*slices, carried)), (keys[0], inputs)
            together = keys[0] is None or is_partitionable(keys[0])  # under `vmap`, other keys draw other bits
            created = jax.vmap(each, axis_size=self.num_layers)(slices) if together else jax.lax.map(each, slices)
        if states_do and (reverse or not params_do):
            looked = program  # pyright: ignore[reportPossiblyUnboundVariable]  # not deleted if `states_do`
            in_turn = self._create_in_turn(looked, keys, carried, inputs, reverse, created.params)
            created = created._replace(initial_state=in_turn.initial_state)
        return created

    def _create_in_turn(
        self, program: Program[Carry], keys: Any, carried: Any, inputs: Any, reverse: bool, known: Any = None
    ) -> Carry:
        """Creates the layers one after the other, because initial values depend on the inputs of their layer.

        If the parameters are `known`, the layers use these and run in the direction of the stack; otherwise they run
        from the first to the last.
        """
        crossing: Crossing[..., Any] = Crossing(self, "hkx.layer_stack", phase=Phase.CLOSED, lifted_name="")

        def layer(carried: Any, slices: Any) -> Any:
            (own, call), inputs, params = slices
            made = program(own, inputs, carried)
            held = _held(made.params if params is None else params, made.initial_state, call)
            with only_looking():  # `_run` counts this call
                (out, _), _ = crossing.run(held, (carried, inputs, reverse))
            return varying_like(tuple(out), carried), made

        backwards = reverse and known is not None
        slices = (keys, inputs, known)
        carried = self._settled(layer, carried, slices)
        return Program(lambda: jax.lax.scan(layer, carried, slices, self.num_layers, reverse=backwards)[1])()

    def _settled(self, body: Any, carried: Any, slices: Any) -> Any:
        """The first layer's input, made device-varying where later inputs are: `jax.shard_map` requires equal types."""
        if not self.num_layers:
            return carried
        return settled(lambda carried: body(carried, jax.tree.map(lambda a: a[0], slices))[0], carried)

    def scan(
        self, held: tuple[Tree, Tree], keys: Any, carried: Any, inputs: Any, reverse: bool
    ) -> tuple[Any, Tree, Captured]:
        """Runs the layers. Returns the result, the states that they changed, and the captured intermediates."""
        crossing: Crossing[..., Any] | None = None
        if local.frames:
            crossing = Crossing(self, "hkx.layer_stack", phase=Phase.CLOSED, lifted_name="")

        def body(carried: Any, slices: Any) -> Any:
            (params, state), key, inputs = slices
            if crossing is None:
                (out, z), new = self(own_tree(carried), own_tree(inputs), reverse), NOTHING
            else:
                (out, z), new = crossing.call(_held(params, state, key), (carried, inputs, reverse))
            check_carry("hkx.layer_stack", carried, out, "a value")
            return varying_like(tuple(out), carried), (z, new.state, new.captured)

        if self.remat:
            policy = None if self.remat is True else self.remat
            body = jax.checkpoint(body, policy=policy, prevent_cse=False)
        slices = (held, keys, inputs)
        length, unroll = self.num_layers, self.unroll
        carried = self._settled(body, carried, slices)
        out, (z, changed, captured) = jax.lax.scan(body, carried, slices, length, reverse=reverse, unroll=unroll)
        out = out if len(carried) > 1 else out[0]
        return ((out, z) if self.with_inputs else out), changed, captured
