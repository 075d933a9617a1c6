"""Reports of runs: kinds of figures, the HTML page, and output in the terminal."""
