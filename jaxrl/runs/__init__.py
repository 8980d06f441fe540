"""What a run leaves behind: its folder, records, checkpoints, and the storage below them."""
