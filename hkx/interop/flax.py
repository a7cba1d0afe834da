"""Flax modules inside hkx, and hkx functions inside Flax. Needs the package `flax`.

In hkx, the parameters of a Flax module are stored like those of other modules: `{"name/Dense_0": {"kernel": …}}`, and
its other variables as state. In Flax, the parameters of an hkx function are nested dicts, split at the slashes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import errors as flax_errors
from flax import nnx
from flax.core import meta

from hkx.base.entries import below
from hkx.core.frame import Scope, current_frame, paths
from hkx.core.naming import checked_name, scope_pushed, unique_name
from hkx.core.rng import maybe_next_rng_key, next_rng_key
from hkx.core.store import get_parameter, get_state, set_state
from hkx.core.transform import Transformed, TransformedWithState
from hkx.errors.core import MissingParameterError
from hkx.errors.interop import WeightMismatchError
from hkx.init.transform import transform_with_state
from hkx.lift.crossing import creating
from hkx.lift.lift import note_all_below, store_below

__all__ = ["Module", "NNXModule", "flatten_flax_to_haiku", "lift"]

Tree = dict[str, dict[str, Any]]


def flatten_flax_to_haiku(collection: Mapping[str, Any]) -> Tree:
    """Converts nested dicts to the two levels in which hkx stores parameters.

    Args:
      collection: mappings of mappings of arrays, of any depth.

    Returns:
      `{module: {name: array}}`, where `module` is the path of keys joined by `/`, and `"~"` for arrays at the top.

    Raises:
      WeightMismatchError: if `collection` is not a mapping, or two of its arrays get the same name.

    Example:

      >>> import hkx.experimental.flax
      >>> hkx.experimental.flax.flatten_flax_to_haiku({"a": {"b": {"w": 1}}, "c": 2})
      {'a/b': {'w': 1}, '~': {'c': 2}}
    """
    out: Tree = {}

    def visit(path: tuple[str, ...], value: Any) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                visit((*path, str(key)), inner)
        else:
            module, name = "/".join(path[:-1]) or "~", path[-1]
            if name in out.setdefault(module, {}):
                raise WeightMismatchError("Two arrays have the same full name", [f"{module}/{name}"], "Rename one.")
            out[module][name] = value

    if not isinstance(collection, Mapping):
        raise WeightMismatchError(f"`collection` must be nested dicts of arrays, got {type(collection).__name__}")
    visit((), collection)
    return out


def _nested(flat: Mapping[str, Mapping[str, Any]], top: str | None = None) -> dict[str, Any]:
    """The inverse of `flatten_flax_to_haiku`; the arrays of the module `top` are placed at the top level."""
    out: dict[str, Any] = {}
    for module, entries in flat.items():
        inner = out
        for key in () if module == top else module.split("/"):
            inner = inner.setdefault(key, {})
            if not isinstance(inner, dict):
                raise _one_name(module)
        if taken := [name for name in entries if name in inner]:
            raise _one_name(f"{module}/{taken[0]}")
        if trees := [f"{module}/{name}" for name, value in entries.items() if isinstance(value, Mapping)]:
            advice = "Make its entries states of their own, or members of a tuple."
            raise WeightMismatchError(
                "A state is a dict, which Flax's nested dicts cannot tell from a module", trees, advice
            )
        inner.update(entries)
    return out


def _one_name(path: str) -> WeightMismatchError:
    return WeightMismatchError(
        "A module and an array have the same full name, and Flax's nested dicts hold one of them", [path], "Rename one."
    )


def _unboxed(flat: Tree) -> Tree:
    """Without the boxes in which Flax keeps metadata beside values. Of a whole tree, Flax would sort the names."""
    return {module: {name: meta.unbox(value) for name, value in entries.items()} for module, entries in flat.items()}


class _AbsentError(Exception):
    """A module has no value for one of its parameters; the argument is its path."""


class _Guest(Protocol):
    """A Flax module with the interface that hkx needs: two-level dicts of parameters and state."""

    def create(self, next_key: Callable[[], Any], args: Any, kwargs: Any) -> tuple[Tree, Tree]:
        """Creates the initial parameters and state; `next_key` draws a key if one is needed."""
        ...

    def run(self, params: Tree, state: Tree, args: Any, kwargs: Any) -> tuple[Any, Tree]:
        """The result of the module, and its new state."""
        ...


class _Linen:
    def __init__(self, module: nn.Module):
        self._module = module

    def create(self, next_key: Callable[[], Any], args: Any, kwargs: Any) -> tuple[Tree, Tree]:
        kwargs = dict(kwargs)
        rngs: Any = kwargs.pop("rngs", None)
        if rngs is None:
            rngs = next_key()
        elif not isinstance(rngs, Mapping):
            raise flax_errors.InvalidRngError(
                f"rngs should be a dictionary of keys by name, and is of type {type(rngs).__name__}: "
                '`rngs={"params": key}`, or `{"dropout": key}`.'
            )
        elif "params" not in rngs:
            rngs = {**rngs, "params": next_key()}
        variables: dict[str, Any] = dict(self._module.init(rngs, *args, **kwargs))  # type: ignore[arg-type]
        variables.pop("intermediates", None)
        flat = {kind: _unboxed(flatten_flax_to_haiku(collection)) for kind, collection in variables.items()}
        params = flat.pop("params", {})
        return params, {f"{kind}/{m}": entries for kind, modules in flat.items() for m, entries in modules.items()}

    def run(self, params: Tree, state: Tree, args: Any, kwargs: Any) -> tuple[Any, Tree]:
        kinds: dict[str, Tree] = {}
        for bundle, entries in state.items():
            kind, _, module = bundle.partition("/")
            kinds.setdefault(kind, {})[module] = entries
        variables = {kind: _nested(flat, top="~") for kind, flat in kinds.items()}
        variables["params"] = _nested(params, top="~")

        kwargs = dict(kwargs)
        given = kwargs.pop("rngs", None)

        def apply(rngs: Any) -> tuple[Any, Any]:
            return self._module.apply(variables, *args, rngs=rngs, mutable=list(kinds), **kwargs)  # type: ignore[return-value]

        try:
            out, changed = apply(given)
        except flax_errors.InvalidRngError:  # a key is drawn only for modules that need one
            key = maybe_next_rng_key() if given is None else None
            if key is None:
                raise
            out, changed = apply({"params": key})
        except (flax_errors.ScopeParamNotFoundError, flax_errors.ScopeCollectionNotFound) as error:
            raise _AbsentError("…") from error
        flat = {kind: flatten_flax_to_haiku(collection) for kind, collection in changed.items()}
        return out, {f"{kind}/{m}": entries for kind, modules in flat.items() for m, entries in modules.items()}


class _Nnx:
    def __init__(self, make: Callable[[nnx.Rngs], nnx.Module]):
        self._make = make
        abstract = nnx.eval_shape(lambda: _checked(make(nnx.Rngs(0)), "a function that returned "))
        self._graph, params, rest = nnx.split(abstract, nnx.Param, ...)
        self._params, self._rest = nnx.to_flat_state(params), nnx.to_flat_state(rest)

    @staticmethod
    def _flat(state: Any) -> Tree:
        values = [(tuple(map(str, path)), variable.get_value()) for path, variable in nnx.to_flat_state(state)]
        out: Tree = {}
        for path, value in values:
            out.setdefault("/".join(path[:-1]) or "~", {})[path[-1]] = value
        return out

    @staticmethod
    def _filled(template: Any, flat: Tree) -> Any:
        def value(path: Any) -> Any:
            names = tuple(map(str, path))
            module = "/".join(names[:-1]) or "~"
            if names[-1] not in flat.get(module, {}):
                raise _AbsentError(f"{module}/{names[-1]}")
            return flat[module][names[-1]]

        return nnx.from_flat_state([(path, variable.replace(value(path))) for path, variable in template])

    def create(self, next_key: Callable[[], Any], args: Any, kwargs: Any) -> tuple[Tree, Tree]:
        del args, kwargs
        _, params, rest = nnx.split(self._make(nnx.Rngs(next_key())), nnx.Param, ...)
        return self._flat(params), self._flat(rest)

    def run(self, params: Tree, state: Tree, args: Any, kwargs: Any) -> tuple[Any, Tree]:
        module: Any = nnx.merge(self._graph, self._filled(self._params, params), self._filled(self._rest, state))
        out = module(*args, **kwargs)
        return out, self._flat(nnx.split(module, nnx.Param, ...)[2])


def _guest(mod: Any) -> _Guest:
    if isinstance(mod, nn.Module):
        return _Linen(mod)
    if isinstance(mod, nnx.Module):
        graph, state = nnx.split(mod)
        return _Nnx(lambda rngs: nnx.merge(graph, state))
    return _Nnx(_checked(mod))


def _checked(mod: Any, given: str = "") -> Any:
    """Something that can be called; a Linen module, which has no values, is not what a function may return."""
    if callable(mod) and not (given and isinstance(mod, nn.Module)):
        return mod
    raise TypeError(
        "`lift` takes a Flax module (Linen or NNX), or a function of `nnx.Rngs` that makes an NNX module; "
        f"got {given}{type(mod).__name__}."
    )


def lift(mod: Any, *, name: str) -> Callable[..., Any]:
    """Makes a Flax module usable inside a function that hkx transforms.

    Args:
      mod: a Linen module; or an NNX module, whose present values are the initial ones; or a function of `nnx.Rngs`
        that makes an NNX module, such as `lambda rngs: nnx.Linear(3, 2, rngs=rngs)`.
      name: the name under which its parameters and state are stored, unique in the running module.

    Returns:
      A function that calls the module. In `init`, as in Haiku, each call initialises what it uses, with one key, and
      replaces what calls before it created. A Linen module takes keys of its own as `rngs={"dropout": key}`; "params"
      is added if it is missing. Parameters are `{"name/Dense_0": {"kernel": …}}`, with `"name/~"` for those of the
      module itself; variables of other collections of Linen are state under `"name/collection/…"`, all other
      variables of NNX are state under `"name/…"`.

    Raises:
      NotInTransformError: outside of a transformed function.
      TypeError: if `mod` is something else.
      MissingParameterError: in `apply`, if the given parameters do not hold those of the module.

    Example:

      >>> import flax.linen as nn, hkx, jax, jax.numpy as jnp
      >>> import hkx.experimental.flax
      >>> def f(x):
      ...     return hkx.Linear(1)(hkx.experimental.flax.lift(nn.Dense(4), name="dense")(x))
      >>> model = hkx.transform(f)
      >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0), jnp.ones([2, 3])))
      {'dense/~': {'bias': (4,), 'kernel': (3, 4)}, 'linear': {'b': (1,), 'w': (4, 1)}}
    """
    frame = current_frame("hkx.experimental.flax.lift")
    guest = _guest(mod)
    prefix = f"{unique_name(frame.scope, checked_name(name))}/"

    def call(*args: Any, **kwargs: Any) -> Any:
        frame = current_frame("hkx.experimental.flax.lift")
        params, state = below(prefix, frame.params), below(prefix, frame.state)
        made = guest.create(next_rng_key, args, kwargs) if frame.running_init else None  # in loops too: it draws a key
        if made is not None and creating(frame):
            old, (params, state) = params, made
            again = {m: {n: v for n, v in params.get(m, {}).items() if n in known} for m, known in old.items()}
            store_below(frame, prefix, again, {})
        params = _each(params, prefix, lambda n, v: get_parameter(n, *_kind(v), init=_giving(v)))
        state = _each(state, prefix, lambda n, v: get_state(n, *_kind(v), init=_giving(v)))
        try:
            out, new_state = guest.run(params, state, args, kwargs)
        except _AbsentError as error:
            path = f"{prefix}{error.args[0]}"
            raise MissingParameterError(path, (), "that the Flax module gives it", paths(frame.params)) from error
        _each(new_state, prefix, set_state)
        note_all_below(frame, prefix)
        return out

    return call


def _kind(value: Any) -> tuple[Any, Any]:
    """The shape and the dtype of an array. A variable of Linen may also be a number or a tree of arrays."""
    return getattr(value, "shape", ()), getattr(value, "dtype", jnp.float32)


def _giving(value: Any) -> Callable[[Any, Any], Any]:
    return lambda shape, dtype: value


def _each(tree: Tree, prefix: str, do: Callable[[str, Any], Any]) -> Tree:
    """Calls `do(name, value)` for every entry, in the scope of the module to which it belongs."""
    frame = current_frame("hkx.experimental.flax.lift")
    out: Tree = {}
    for bundle, entries in tree.items():
        with scope_pushed(frame, Scope(f"{prefix}{bundle}", "__call__")):
            out[bundle] = {name: do(name, value) for name, value in entries.items()}
    return out


def _with_state(transformed: Transformed | TransformedWithState) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Of either kind of transform, the `init` as returning `(params, state)`, the `apply` as `(out, state)`."""
    if isinstance(transformed, TransformedWithState):
        return transformed.init, transformed.apply

    def init(rng: Any, *args: Any, **kwargs: Any) -> Any:
        return transformed.init(rng, *args, **kwargs), {}

    def apply(params: Any, state: Any, rng: Any, *args: Any, **kwargs: Any) -> Any:
        return transformed.apply(params, rng, *args, **kwargs), state

    return init, apply


class Module(nn.Module):
    """A function that hkx has transformed, as a Linen module.

    Its parameters are in the collection `params` and its state in `state`, nested at the slashes of hkx's names.
    `init` needs a key called `params`; a function that draws keys in `apply` needs one called `apply`, in both.

    Args:
      transformed: the result of `hkx.transform` or `hkx.transform_with_state`.
      parent: as for every Linen module.
      name: as for every Linen module.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> import hkx.experimental.flax
      >>> net = hkx.experimental.flax.Module(hkx.transform(lambda x: hkx.nets.MLP([4, 1])(x)))
      >>> variables = net.init(jax.random.key(0), jnp.ones([2, 3]))
      >>> jax.tree.map(jnp.shape, variables["params"]["mlp"]["~"]["linear_1"])
      {'b': (1,), 'w': (4, 1)}
    """

    transformed: Transformed | TransformedWithState

    @classmethod
    def create(cls, hk_cls: Callable[..., Any], *init_args: Any, **init_kwargs: Any) -> Module:
        """A Linen module that creates an hkx module and calls it: `Module.create(hkx.Linear, 10)`."""
        return cls(transform_with_state(lambda *a, **k: hk_cls(*init_args, **init_kwargs)(*a, **k)))

    @nn.compact
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        init, apply = _with_state(self.transformed)
        if self.is_initializing() and not self.variables:
            params, state = init(self.make_rng("params"), *args, **kwargs)
            self._put("params", params)
            self._put("state", state)
        else:
            params, state = (flatten_flax_to_haiku(self.variables.get(c, {})) for c in ("params", "state"))
        rng = self.make_rng("apply") if self.has_rng("apply") else None
        out, new_state = apply(params, state, rng, *args, **kwargs)
        changed = {
            m: entries
            for m, entries in new_state.items()
            if any(v is not state.get(m, {}).get(n) for n, v in entries.items())
        }
        if changed and not self.is_initializing():
            self._put("state", new_state)
        return out

    def _put(self, collection: str, tree: Mapping[str, Mapping[str, Any]]) -> None:
        for name, value in _nested(tree).items():
            self.put_variable(collection, name, value)


class NNXModule(nnx.Module):
    """A function that hkx has transformed, as an NNX module.

    Args:
      transformed: the result of `hkx.transform` or `hkx.transform_with_state`.
      *args: example arguments of the function.
      rngs: the source of keys: `params` for the initial values, `apply` (or the default) for keys drawn in calls.
      **kwargs: example keyword arguments of the function.

    Example:

      >>> from flax import nnx
      >>> import hkx, jax, jax.numpy as jnp
      >>> from hkx.interop.flax import NNXModule
      >>> x = jnp.ones([2, 3])
      >>> net = NNXModule(hkx.transform(lambda x: hkx.Linear(4)(x)), x, rngs=nnx.Rngs(0))
      >>> net(x).shape
      (2, 4)
    """

    def __init__(self, transformed: Transformed | TransformedWithState, *args: Any, rngs: nnx.Rngs, **kwargs: Any):
        init, self._apply = _with_state(transformed)
        params, state = init(rngs.params(), *args, **kwargs)
        self.params = nnx.Param(params)
        self.state = nnx.BatchStat(state)
        self.rngs = rngs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, and stores its new state."""
        old = self.state.get_value()
        stream = getattr(self.rngs, "apply", None)  # the function may not need a key
        key = stream() if stream is not None else None
        out, new = self._apply(self.params.get_value(), old, key, *args, **kwargs)
        if jax.tree.leaves(new):
            self.state.set_value(new)
        return out
