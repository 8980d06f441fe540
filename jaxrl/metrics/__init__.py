"""Measurements of a run: values, seconds, resources and traces; text and files for them."""
