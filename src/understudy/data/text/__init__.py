"""Text: tokens of sentences, the vocabulary that numbers them, and files with a sentence a line."""
