"""Networks as functions: their folds, their canonical parameters, and what determines one from the other."""
