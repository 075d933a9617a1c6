"""Image data sets, read from the files that their authors publish."""
