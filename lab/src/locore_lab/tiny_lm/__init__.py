"""How the language model `tiny` and the judge were trained."""
