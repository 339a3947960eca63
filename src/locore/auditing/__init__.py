"""How probable it is that a model writes something: one prompt, many prompts, a page about them, and a comparison."""
