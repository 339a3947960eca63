"""What Locore is measured by: the paper's experiments, benchmarks, and how the bundled models were trained."""
