"""Many runs in one program."""
