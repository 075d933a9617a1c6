"""The study `folds`: exact fold-sets in two dimensions, and what they say about layers."""
