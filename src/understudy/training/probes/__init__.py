"""Probes: measure every network of a group, plainly (`reading`) or by a fused kernel (`fused_cpu`, `fused_cuda`)."""
