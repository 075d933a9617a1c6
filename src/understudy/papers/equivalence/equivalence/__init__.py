"""The study `equivalence`: pairs of equal and of changed networks, and students of zero loss (claims E1, E4)."""
