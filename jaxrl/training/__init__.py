"""A training run: the loop, the programs that it drives, and what it keeps."""
