"""What steers prefixes to a constraint: an n-gram table of a model, and the look-ahead that it gives."""
