"""CommonGen: sentences with all concepts of a set, beside masking and genlm-control."""
