"""Part of the kernel: what all else stands on."""
