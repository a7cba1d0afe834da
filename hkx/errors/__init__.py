"""Every exception that hkx raises by name."""

from hkx.errors.core import DuplicateNameError as DuplicateNameError
from hkx.errors.core import HkxError as HkxError
from hkx.errors.core import IntermediateInInnerTraceError as IntermediateInInnerTraceError
from hkx.errors.core import InvalidNameError as InvalidNameError
from hkx.errors.core import InvalidParamsError as InvalidParamsError
from hkx.errors.core import InvalidRNGError as InvalidRNGError
from hkx.errors.core import InvalidSizeError as InvalidSizeError
from hkx.errors.core import InvalidTemplateError as InvalidTemplateError
from hkx.errors.core import InvalidTransformedError as InvalidTransformedError
from hkx.errors.core import JaxUsageError as JaxUsageError
from hkx.errors.core import JitInTransformError as JitInTransformError
from hkx.errors.core import KeyInInnerTraceError as KeyInInnerTraceError
from hkx.errors.core import MissingInitializerError as MissingInitializerError
from hkx.errors.core import MissingParameterError as MissingParameterError
from hkx.errors.core import MissingRNGError as MissingRNGError
from hkx.errors.core import MissingStateError as MissingStateError
from hkx.errors.core import MissingSuperInitError as MissingSuperInitError
from hkx.errors.core import NameExpectedError as NameExpectedError
from hkx.errors.core import NonEmptyStateError as NonEmptyStateError
from hkx.errors.core import NoSuchAttributeError as NoSuchAttributeError
from hkx.errors.core import NotANameError as NotANameError
from hkx.errors.core import NotAnArrayError as NotAnArrayError
from hkx.errors.core import NotCallableError as NotCallableError
from hkx.errors.core import NotInTransformError as NotInTransformError
from hkx.errors.core import ParameterInInnerTraceError as ParameterInInnerTraceError
from hkx.errors.core import ShapeMismatchError as ShapeMismatchError
from hkx.errors.core import ShardingRuleError as ShardingRuleError
from hkx.errors.core import StateInInnerTraceError as StateInInnerTraceError
from hkx.errors.core import StrictUsageError as StrictUsageError
from hkx.errors.core import UnevenBatchError as UnevenBatchError
from hkx.errors.core import UsedScopeError as UsedScopeError
from hkx.errors.init import AbstractInitError as AbstractInitError
from hkx.errors.init import InitDependsOnTracingError as InitDependsOnTracingError
from hkx.errors.init import LeakedByInitError as LeakedByInitError
from hkx.errors.interop import WeightMismatchError as WeightMismatchError
from hkx.errors.lift import BatchedValueError as BatchedValueError
from hkx.errors.lift import BodyResultError as BodyResultError
from hkx.errors.lift import BranchMismatchError as BranchMismatchError
from hkx.errors.lift import CarryMismatchError as CarryMismatchError
from hkx.errors.lift import ClosedOverModuleError as ClosedOverModuleError
from hkx.errors.lift import ConditionEffectError as ConditionEffectError
from hkx.errors.lift import LateParameterError as LateParameterError
from hkx.errors.lift import LayerFunctionError as LayerFunctionError
from hkx.errors.lift import LayerInputsError as LayerInputsError
from hkx.errors.lift import LiftedStateError as LiftedStateError
from hkx.errors.lift import LiftReuseError as LiftReuseError
from hkx.errors.lift import MappedSizeError as MappedSizeError
from hkx.errors.lift import MissingRuleError as MissingRuleError
from hkx.errors.lift import MissingSplitRNGError as MissingSplitRNGError
from hkx.errors.lift import NothingMappedError as NothingMappedError
from hkx.errors.lift import ScanLengthError as ScanLengthError
from hkx.errors.lift import StackError as StackError
from hkx.errors.lift import StateInLoopError as StateInLoopError
from hkx.errors.lift import StateUpdaterError as StateUpdaterError
from hkx.errors.nn import FeatureSizeError as FeatureSizeError
from hkx.errors.nn import InvalidInputError as InvalidInputError
from hkx.errors.nn import InvalidLengthError as InvalidLengthError
from hkx.errors.nn import InvalidPaddingError as InvalidPaddingError
from hkx.errors.nn import InvalidRankError as InvalidRankError
from hkx.errors.nn import InvalidReshapeError as InvalidReshapeError
from hkx.errors.nn import InvalidWindowError as InvalidWindowError
from hkx.errors.nn import LeadingDimensionsError as LeadingDimensionsError
from hkx.errors.nn import MaskShapeError as MaskShapeError
from hkx.errors.nn import MissingAverageError as MissingAverageError
from hkx.errors.nn import NotABoolError as NotABoolError
from hkx.errors.nn import NotAListError as NotAListError
from hkx.errors.nn import NotANumberError as NotANumberError
from hkx.errors.nn import NotAParameterTreeError as NotAParameterTreeError
from hkx.errors.nn import OutOfRangeError as OutOfRangeError
from hkx.errors.nn import ScalarInputError as ScalarInputError
from hkx.errors.nn import UnknownLookupStyleError as UnknownLookupStyleError

__all__ = [
    "AbstractInitError",
    "BatchedValueError",
    "BodyResultError",
    "BranchMismatchError",
    "CarryMismatchError",
    "ClosedOverModuleError",
    "ConditionEffectError",
    "DuplicateNameError",
    "FeatureSizeError",
    "HkxError",
    "InitDependsOnTracingError",
    "IntermediateInInnerTraceError",
    "InvalidInputError",
    "InvalidLengthError",
    "InvalidNameError",
    "InvalidPaddingError",
    "InvalidParamsError",
    "InvalidRNGError",
    "InvalidRankError",
    "InvalidReshapeError",
    "InvalidSizeError",
    "InvalidTemplateError",
    "InvalidTransformedError",
    "InvalidWindowError",
    "JaxUsageError",
    "JitInTransformError",
    "KeyInInnerTraceError",
    "LateParameterError",
    "LayerFunctionError",
    "LayerInputsError",
    "LeadingDimensionsError",
    "LeakedByInitError",
    "LiftReuseError",
    "LiftedStateError",
    "MappedSizeError",
    "MaskShapeError",
    "MissingAverageError",
    "MissingInitializerError",
    "MissingParameterError",
    "MissingRNGError",
    "MissingRuleError",
    "MissingSplitRNGError",
    "MissingStateError",
    "MissingSuperInitError",
    "NameExpectedError",
    "NoSuchAttributeError",
    "NonEmptyStateError",
    "NotABoolError",
    "NotAListError",
    "NotANameError",
    "NotANumberError",
    "NotAParameterTreeError",
    "NotAnArrayError",
    "NotCallableError",
    "NotInTransformError",
    "NothingMappedError",
    "OutOfRangeError",
    "ParameterInInnerTraceError",
    "ScalarInputError",
    "ScanLengthError",
    "ShapeMismatchError",
    "ShardingRuleError",
    "StackError",
    "StateInInnerTraceError",
    "StateInLoopError",
    "StateUpdaterError",
    "StrictUsageError",
    "UnevenBatchError",
    "UnknownLookupStyleError",
    "UsedScopeError",
    "WeightMismatchError",
]
