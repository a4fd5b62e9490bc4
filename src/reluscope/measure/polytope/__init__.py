"""Gaussian masses of polytopes in any dimension, by tilted quasi-Monte Carlo or rays."""
