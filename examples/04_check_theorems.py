"""Check theorems on trained networks: which teacher nodes are certified to have a student, and what the others lack.

A certificate follows from a theorem (such as Tian 2020, theorem 3) whose hypotheses have all been verified on the
networks and data. It needs small gradients, so certificates appear as training proceeds; the table at the end names,
for each network, the hypothesis that fails most and by what factor.
"""

import understudy as us

teacher = us.teachers.regular((2, 2, 2), seeds=(1, 2))
students = us.students.gaussian(teacher, scale=0.5)
data = us.data.Gaussian(dim=2, std=1.0, train=20_000, evaluation=1_000)

for epochs in (1, 20):
    run = us.train(students, teacher, data, us.SGD(lr=0.05, batch=16), epochs=epochs, steps=1_000)
    checks = us.check(run, samples=20_000)
    print(f"after {epochs:>2} epochs: {checks.headline}")

print(f"\n{checks}")
