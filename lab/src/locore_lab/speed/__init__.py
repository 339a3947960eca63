"""`locore bench speed`: what Locore costs, as ratios to what it is compared with in the same run."""
