"""Everything that a run stores: its folder, records, checkpoints, and the storage below them."""
