"""Image data sets, read from the files in which their authors publish them."""
