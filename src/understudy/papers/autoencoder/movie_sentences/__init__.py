"""Study `movie-sentences`: codes of short sentences with M nats of information (Phuong 2021, sec. 4.6.3)."""
