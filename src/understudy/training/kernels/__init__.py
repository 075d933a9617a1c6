"""Compiled kernels: numba for the CPU, CUDA for the GPU."""
