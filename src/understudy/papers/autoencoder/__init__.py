"""The mutual autoencoder: how much information a code has about the data, set by hand.

M. Phuong, M. Welling, N. Kushman, R. Tomioka and S. Nowozin, "The Mutual Autoencoder: Controlling Information in Latent
Code Representations", 2018; chapter 4 and appendix C of M. Phuong's thesis (S3).

`theory/` has exact values of models with a code of one coordinate: the gap of theorem 4.2, likelihoods and posteriors,
the density of the resampling encoder, and the variance of gradient estimators; the studies are `split_normal`,
`ten_labels` and `movie_sentences`.
"""
