"""What a claim of a paper is, how one is decided, and the record of what full runs measured."""
