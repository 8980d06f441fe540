"""`jaxrl dashboard`: a web page on the runs of a folder as they are written. It only reads."""
