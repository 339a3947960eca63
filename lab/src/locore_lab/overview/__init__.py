"""The paper's Figure 1, made from a run, and what the paper says of the local distribution: its entropy, its divergence."""
