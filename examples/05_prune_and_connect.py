"""Remove the student nodes that learned nothing, and connect two students by a path of low loss.

Two students of one teacher are trained from different initial weights. On the straight line between them the loss is
high; on a path that moves one group of weights at a time it stays low (Tian 2020, theorem 2 and appendix E).
"""

import understudy as us
from understudy.papers.specialization.theory.connectivity import connecting_path, losses_along, straight_path
from understudy.papers.specialization.theory.pruning import prune_student, pruning_losses, refit

teacher = us.teachers.separated((20, 5, 10), polarity=1.0, seeds=[3, 3])
students = us.students.gaussian(teacher, multiple=10, scale=0.005, seeds=[1, 2])
data = us.data.Gaussian(dim=20, std=1.5, train=5_000, evaluation=2_000)
run = us.train(students, teacher, data, us.SGD(lr=0.05, batch=16), epochs=10, steps=2_000)

teacher, a, b = teacher[0], run.students[0], run.students[1]
x, held_out = data.training(3), data.evaluating(3)

pruning = prune_student(teacher, a, x, below=0.8, by="correlation")
losses = pruning_losses(teacher, a, pruning, refit(teacher, pruning.network, x), held_out)
print(f"{len(pruning.dropped)} of {a.sizes[1]} student nodes removed. Loss as a share of the output variance:")
print(f"  before {losses.before:.1e}, after {losses.after:.1e}, with refitted output weights {losses.refitted:.1e}")

path = connecting_path(a, b, teacher, x)
along, line = losses_along(path, teacher, held_out), losses_along(straight_path(a, b), teacher, held_out, 50)
print(f"\nA path of {len(path.moves)} segments connects the two students. Largest loss:")
print(f"  on the path {float(along.max()):.1e}, on the straight line {float(line.max()):.1e}")
