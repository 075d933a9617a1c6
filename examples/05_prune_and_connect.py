"""Remove the student nodes that learned nothing, and connect two students by a path of low loss.

Two students of one teacher are trained from different initial weights. On the straight line between them the loss is
high; on a path that moves one group of weights at a time it stays low (Tian 2020, theorem 2 and appendix E).
"""

import understudy as us

teacher = us.teachers.distinct_rows((20, 5, 10), polarity=1.0, seeds=3)
students = us.students.gaussian(teacher, multiple=10, scale=0.005, seeds=[1, 2])
data = us.data.Gaussian(dim=20, std=1.5, train=5_000, evaluation=2_000)
run = us.train(students, teacher, data, us.SGD(lr=0.05, batch=16), epochs=10, steps=2_000)

a, b = run.students[0], run.students[1]

pruned = us.prune(a, teacher, data, below=0.8)
losses = pruned.held_out
print(f"{pruned.removed} of {a.sizes[1]} student nodes removed. Loss as a share of the output variance:")
print(f"  before {losses.before:.1e}, after {losses.after:.1e}, with refitted output weights {losses.refitted:.1e}")

found = us.connect(a, b, teacher, data)
print(f"\nA path of {len(found.path.moves)} segments connects the two students. Largest loss:")
print(f"  on the path {found.largest:.1e}, on the straight line {found.largest_on_line:.1e}")
