"""How the results of `check` are shown: in the terminal and as an HTML page."""
