"""Types of the wrappers whose return type depends on their options, for type checkers only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, overload

import jax
import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A")
Aux = TypeVar("Aux")
Axes = int | Sequence[int]
Number = jax.Array | np.ndarray | np.number | complex
"""What may be passed to a function whose argument is annotated as float; its gradient is an array."""

class Grad(Protocol):
    """`hkx.grad`."""

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[float, P], R],
        argnums: Literal[0] = 0,
        has_aux: Literal[False] = False,
        holomorphic: bool = False,
        *,
        allow_int: bool = False,
    ) -> Callable[Concatenate[Number, P], jax.Array]: ...
    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[A, P], R],
        argnums: Literal[0] = 0,
        has_aux: Literal[False] = False,
        holomorphic: bool = False,
        *,
        allow_int: bool = False,
    ) -> Callable[Concatenate[A, P], A]: ...
    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[A, P], tuple[R, Aux]],
        argnums: Literal[0] = 0,
        *,
        has_aux: Literal[True],
        holomorphic: bool = False,
        allow_int: bool = False,
    ) -> Callable[Concatenate[A, P], tuple[A, Aux]]: ...
    @overload
    def __call__(
        self,
        fun: Callable[P, Any],
        argnums: Sequence[int],
        has_aux: Literal[False] = False,
        holomorphic: bool = False,
        *,
        allow_int: bool = False,
    ) -> Callable[P, tuple[Any, ...]]: ...
    @overload
    def __call__(
        self,
        fun: Callable[P, tuple[Any, Aux]],
        argnums: Sequence[int],
        *,
        has_aux: Literal[True],
        holomorphic: bool = False,
        allow_int: bool = False,
    ) -> Callable[P, tuple[tuple[Any, ...], Aux]]: ...
    @overload
    def __call__(
        self,
        fun: Callable[P, tuple[Any, Aux]],
        argnums: int,
        *,
        has_aux: Literal[True],
        holomorphic: bool = False,
        allow_int: bool = False,
    ) -> Callable[P, tuple[Any, Aux]]: ...
    @overload
    def __call__(
        self,
        fun: Callable[P, Any],
        argnums: Axes = 0,
        has_aux: bool = False,
        holomorphic: bool = False,
        *,
        allow_int: bool = False,
    ) -> Callable[P, Any]: ...

class ValueAndGrad(Protocol):
    """`hkx.value_and_grad`."""

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[float, P], R],
        argnums: Literal[0] = 0,
        has_aux: Literal[False] = False,
        holomorphic: bool = False,
        *,
        allow_int: bool = False,
    ) -> Callable[Concatenate[Number, P], tuple[R, jax.Array]]: ...
    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[A, P], R],
        argnums: Literal[0] = 0,
        has_aux: bool = False,
        holomorphic: bool = False,
        *,
        allow_int: bool = False,
    ) -> Callable[Concatenate[A, P], tuple[R, A]]: ...
    @overload
    def __call__(
        self,
        fun: Callable[P, R],
        argnums: Sequence[int],
        has_aux: bool = False,
        holomorphic: bool = False,
        *,
        allow_int: bool = False,
    ) -> Callable[P, tuple[R, tuple[Any, ...]]]: ...
    @overload
    def __call__(
        self,
        fun: Callable[P, R],
        argnums: Axes = 0,
        has_aux: bool = False,
        holomorphic: bool = False,
        *,
        allow_int: bool = False,
    ) -> Callable[P, tuple[R, Any]]: ...

class Jvp(Protocol):
    """`hkx.jvp`."""

    @overload
    def __call__(
        self, fun: Callable[..., R], primals: Any, tangents: Any, has_aux: Literal[False] = False
    ) -> tuple[R, R]: ...
    @overload
    def __call__(
        self, fun: Callable[..., tuple[R, Aux]], primals: Any, tangents: Any, has_aux: Literal[True]
    ) -> tuple[R, R, Aux]: ...
    @overload
    def __call__(
        self, fun: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False
    ) -> tuple[Any, ...]: ...

class Vjp(Protocol):
    """`hkx.vjp`."""

    @overload
    def __call__(
        self, fun: Callable[..., R], *primals: Any, has_aux: Literal[False] = False
    ) -> tuple[R, Callable[[R], tuple[Any, ...]]]: ...
    @overload
    def __call__(
        self, fun: Callable[..., tuple[R, Aux]], *primals: Any, has_aux: Literal[True]
    ) -> tuple[R, Callable[[R], tuple[Any, ...]], Aux]: ...
    @overload
    def __call__(self, fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]: ...

class Linearize(Protocol):
    """`hkx.linearize`."""

    @overload
    def __call__(
        self, fun: Callable[..., R], *primals: Any, has_aux: Literal[False] = False
    ) -> tuple[R, Callable[..., R]]: ...
    @overload
    def __call__(
        self, fun: Callable[..., tuple[R, Aux]], *primals: Any, has_aux: Literal[True]
    ) -> tuple[R, Callable[..., R], Aux]: ...
    @overload
    def __call__(self, fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]: ...

class EvalShape(Protocol):
    """`hkx.eval_shape`."""

    @overload
    def __call__(self, fun: Callable[..., jax.Array], *args: Any, **kwargs: Any) -> jax.ShapeDtypeStruct: ...
    @overload
    def __call__(self, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any: ...

class Jit(Protocol):
    """`hkx.jit`."""

    @overload
    def __call__(
        self,
        fun: Callable[P, R],
        /,
        *,
        static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Sequence[str] | None = None,
        donate_argnums: int | Sequence[int] | None = None,
        inline: bool = False,
        **options: Any,
    ) -> Callable[P, R]: ...
    @overload
    def __call__(
        self,
        fun: None = None,
        /,
        *,
        static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Sequence[str] | None = None,
        donate_argnums: int | Sequence[int] | None = None,
        inline: bool = False,
        **options: Any,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

def typed(kind: type[T]) -> Callable[[Any], T]: ...
