"""Network files: reading, what is stated and what is assumed about them, and writing."""
