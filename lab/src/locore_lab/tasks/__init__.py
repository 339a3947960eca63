"""`locore bench tasks`: what users ask of a real language model, and who answers it from the right distribution."""
