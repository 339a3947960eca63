"""Digits spoken by a synthesiser, and a small Whisper that writes them down."""
