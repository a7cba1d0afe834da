"""The ground that every operator stands on: types, errors, the argument checker, arrays, trees, the recurrence."""
