"""Follow one student over training: which of its nodes learned which teacher node, how well, and when.

Teacher nodes with a larger fan-out (strength) are learned first (Tian 2020, fig. 8). `run.nodes` is a pyarrow table
with one row per node, network and epoch; rows with the role `teacher` are teacher nodes with their best student.
"""

import pyarrow.compute as pc

import understudy as us

teacher = us.teachers.distinct_rows((40, 10, 20), polarity=1.0, seeds=1)
students = us.students.gaussian(teacher, multiple=5)
data = us.data.Gaussian(dim=40, std=1.5, train=5_000, evaluation=1_000)
run = us.train(students, teacher, data, us.SGD(lr=0.02, batch=16), epochs=20, steps=500)

strengths = us.teachers.strengths(teacher)[0]
matches = run.nodes.filter(pc.field("role") == "teacher").to_pylist()
print("teacher   strength   recovered at   final student   correlation")
for j, strength in enumerate(strengths):
    history = sorted((row for row in matches if row["teacher"] == j), key=lambda row: row["epoch"])
    when = next((f"epoch {row['epoch']}" for row in history if row["correlation"] > us.measures.THRESHOLD), "never")
    last = history[-1]
    print(f"{j:>7}   {float(strength):>8.3f}   {when:>12}   {last['student']:>13}   {last['correlation']:>11.4f}")

idle = run.nodes.filter((pc.field("role") == "student") & (pc.field("epoch") == 20) & (pc.field("correlation") < 0.8))
print(f"\n{idle.num_rows} of {students.sizes[1]} students have a best correlation below 0.8.")
