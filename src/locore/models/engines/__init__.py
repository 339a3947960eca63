"""Engines that serve a model: vLLM in this process or over HTTP, SGLang over HTTP; each is a `LanguageModel` like any other."""
