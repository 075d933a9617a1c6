"""Train students of four widths against eight teachers, all at once, and see which width recovers the teacher.

A teacher node counts as recovered when some student node has a correlation above 0.95 with it. Wider students
recover more nodes, and recover them sooner (Tian 2020, figs. 7 and 8).
"""

import understudy as us

WIDTHS = (1, 2, 5, 10)

teacher = us.teachers.distinct_rows((40, 10, 20), polarity=1.0, seeds=range(1, 9))
students = [us.students.gaussian(teacher, multiple=width) for width in WIDTHS]
data = us.data.Gaussian(dim=40, std=1.5, train=5_000, evaluation=1_000)

run = us.train(students, teacher, data, us.SGD(lr=0.02, batch=16), epochs=10, steps=1_000)

recovered = run.array("recovered", "epoch multiple seed").mean("seed")
print("share of 10 teacher nodes recovered, mean over 8 seeds\n")
print("epoch " + "".join(f"{width:>7}×" for width in WIDTHS))
for epoch in run.epochs:
    print(f"{epoch:>5} " + "".join(f"{share:>8.2f}" for share in recovered.sel(epoch=epoch).to_numpy()))
