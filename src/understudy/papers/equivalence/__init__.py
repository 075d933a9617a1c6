"""When two ReLU networks are one function, and what a function says about the parameters behind it.

M. Phuong and C. Lampert, "Functional vs. Parametric Equivalence of ReLU Networks", ICLR 2020; chapter 2 and appendix A
of M. Phuong's thesis (S3).

Users call `compare.py` (`us.compare`), `recover.py` (`us.recover`) and `fold_sets.py` (`us.folds`); `comparison.py`,
`fold_page.py` and `fold_film.py` are their results and pages. `theory/` has the methods, and `equivalence/`,
`recovery/` and `folds/` the studies.
"""
