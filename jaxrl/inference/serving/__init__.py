"""Answers requests for actions over HTTP."""
