"""JSON Schema beside other engines: the official test-suite and MaskBench, taken, right and how fast."""
