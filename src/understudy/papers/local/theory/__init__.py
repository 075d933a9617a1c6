"""Theorems and closed forms of Zhou, Ge & Jin 2021, and simulators of the dynamics they describe.

`gaussian` has losses and gradients in closed form, `geometry` the quantities that the lemmas bound, `convergence` the
results that `check` applies, `starts` initial students and teachers, `descent` gradient descent and flow, and
`identifiability` the ReLU networks of appendix A.
"""
