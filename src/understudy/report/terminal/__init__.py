"""What a run shows in the terminal: progress while it trains, tables at its end."""
