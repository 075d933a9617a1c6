"""Training of networks with several exits (Phuong & Lampert 2019b).

`plan.py` says what is trained, `population.py` runs the epochs, `objectives.py` has the losses, `history.py` what was
measured. Engines take the steps: `plain.py` is the reference.
"""
