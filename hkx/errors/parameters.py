"""What a parameter cannot be made with."""

from __future__ import annotations

from hkx.errors.core import HkxError, described


class InvalidInitializerError(HkxError, TypeError):
    """What should make a parameter, or a state, is no function."""

    def __init__(self, path: str, init: object):
        super().__init__(
            f"The initializer of {path!r} is not callable: it is {init!r}, and should be a function of (shape, dtype), "
            "for example `jnp.zeros`. Is there an argument too many where the layer is made?"
        )


class InvalidShapeError(HkxError, TypeError, ValueError):
    """A parameter is asked for with what is no shape."""

    def __init__(self, path: str, shape: object):
        wanted = f": [{shape}]" if isinstance(shape, int) else " of whole numbers, for example [2, 3]"
        super().__init__(f"The shape of {path!r} is {shape!r}, and should be a sequence{wanted}.")


class InvalidDTypeError(HkxError, TypeError, ValueError):
    """A parameter is asked for with what is no dtype that JAX has."""

    def __init__(self, path: str, dtype: object):
        super().__init__(
            f"The dtype of {path!r} is {dtype!r}, and should be one that JAX has, for example `jnp.float32`."
        )


class InvalidEntryNameError(HkxError, TypeError):
    """A parameter or a state is asked for by what is no name."""

    def __init__(self, bundle: str, name: object):
        super().__init__(
            f"The name of a parameter or a state of {bundle!r} is {described(name)}, and "
            "should be a string, for example 'w'."
        )
