"""Vector kernels: steps on many numbers at once, written as vector instructions."""
