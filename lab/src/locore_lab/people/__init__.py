"""Twenty wishes of people, as three tools answer them, graded blind."""
