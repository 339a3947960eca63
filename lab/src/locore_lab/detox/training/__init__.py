"""How the bundled scorer was trained, and what it can do."""
