"""Worker processes for Python environments, with observations in shared memory."""
