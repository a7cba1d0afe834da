"""Annotations that declare which arguments are valid, by which modules check and convert; checks of single values.

The methods of a module receive what their annotations declare:

    class Scaled(hkx.Module):
        def __init__(self, size: Size, rate: Number[float, "[0, 1)"], with_bias: Flag = True, name=None): ...
        def __call__(self, inputs: Num[jax.Array, "... D"], lengths: Int[jax.Array, "..."] | None = None): ...

Type checkers read `Size` as `int`, for example, and inside the method it is one: an array of one integer is converted
to an int, a list to an array. Errors name the class and the argument. None is allowed with `| None`. Defaults and
results are not checked, and neither are arguments with other annotations or none. For functions, use `checked`.

    Size, PositiveSize, Index    int: at least 0, at least 1, any
    Sizes                        an int, at least 1, or a sequence of those, converted to a tuple
    Axes                         a slice, or an int or an iterable of ints, converted to a tuple
    Flag                         bool, or what Python takes for one, except numbers other than 0 and 1
    Function                     a callable
    Items[Size]                  an iterable, no string, of sizes, functions or others, converted to a tuple
    Number[float, "[0, 1)"]      a real number in this interval, or in "any"; with a third text, "...", or an array of
                                 them; traced ones are not compared
    Num, Real, Float, Int        arrays of any numbers, of real ones, of floats or complex ones, of integers
    Shaped                       arrays of any dtype, including typed random keys

Shapes have the notation of jaxtyping: `Num[jax.Array, "... T D"]` has two dimensions or more, and
`Num[jax.Array, "F", "B F"]` one or two. A name that several arguments share is one size throughout a call, and
dimensions such as `*B` broadcast to each other. `Num[jax.Array | np.ndarray, "..."]` leaves a NumPy array as it is.
Write a rule of your own as `Annotated[int, Rule(check)]`.
"""

from hkx.arguments.checks import array_of as array_of
from hkx.arguments.checks import checked_flag as checked_flag
from hkx.arguments.checks import checked_function as checked_function
from hkx.arguments.checks import checked_integer as checked_integer
from hkx.arguments.checks import checked_number as checked_number
from hkx.arguments.checks import deprecated_argument as deprecated_argument
from hkx.arguments.checks import is_iterable as is_iterable
from hkx.arguments.contract import Rule as Rule
from hkx.arguments.contract import checked as checked
from hkx.arguments.vocabulary import Axes as Axes
from hkx.arguments.vocabulary import Flag as Flag
from hkx.arguments.vocabulary import Float as Float
from hkx.arguments.vocabulary import Function as Function
from hkx.arguments.vocabulary import Index as Index
from hkx.arguments.vocabulary import Int as Int
from hkx.arguments.vocabulary import Items as Items
from hkx.arguments.vocabulary import Num as Num
from hkx.arguments.vocabulary import Number as Number
from hkx.arguments.vocabulary import PositiveSize as PositiveSize
from hkx.arguments.vocabulary import Real as Real
from hkx.arguments.vocabulary import Shaped as Shaped
from hkx.arguments.vocabulary import Size as Size
from hkx.arguments.vocabulary import Sizes as Sizes

__all__ = [
    "Axes",
    "Flag",
    "Float",
    "Function",
    "Index",
    "Int",
    "Items",
    "Num",
    "Number",
    "PositiveSize",
    "Real",
    "Rule",
    "Shaped",
    "Size",
    "Sizes",
    "array_of",
    "checked",
    "checked_flag",
    "checked_function",
    "checked_integer",
    "checked_number",
    "deprecated_argument",
    "is_iterable",
]
