"""When two ReLU networks are one function, and what a function says about the parameters behind it.

M. Phuong and C. Lampert, "Functional vs. Parametric Equivalence of ReLU Networks", ICLR 2020; chapter 2 and appendix A
of M. Phuong's thesis (S3).
"""
