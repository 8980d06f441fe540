"""What a run measures: values, seconds, resources, traces, and where they are written and shown."""
