"""What can be measured and checked around training: speed, traces, memory, the machine."""
