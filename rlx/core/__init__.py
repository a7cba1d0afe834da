"""The basis of all operators: types, errors, argument checks, arrays, trees and the recurrence."""
