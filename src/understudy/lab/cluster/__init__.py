"""More than one machine: the pieces of a study as tasks of an existing distributed engine, Ray.

`engine.connect` opens a cluster, `pieces.compute_pieces` computes pieces of a computed study on it, and
`training.ClusterTraining` trains parts of a population on it. One process writes the run folder; on the CPU its files
have the same bytes as those of one machine.
"""
