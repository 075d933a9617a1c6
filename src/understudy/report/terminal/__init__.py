"""Terminal output: progress during a run, tables at its end."""
