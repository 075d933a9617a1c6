"""Ways to measure every network of a group after an epoch."""
