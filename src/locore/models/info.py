"""What is known of a model: its size, where it comes from, and under which licence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Origin:
    """What a file of weights says about itself; None where it says nothing.

    Attributes:
        provenance: who published the model, under which name.
        licence: as the file spells it, such as "apache-2.0".
        quantisation: formats of the weights in the file, by their share of the numbers.
        caution: what is not as in the original model, if anything.
    """

    provenance: str | None = None
    licence: str | None = None
    quantisation: str | None = None
    caution: str | None = None


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a model; printed, it is a few lines.

    Attributes:
        name: of its folder or file, or its name on the Hub.
        architecture: as `transformers` calls it, such as "llama".
        parameters: how many numbers it has; what is shared counts once.
        vocabulary: columns of its next-token distributions.
        context: how many tokens it can read; None if nothing is declared.
        dtype: in which it computes, such as "float32".
        place: the folder that its weights are read from, or its name on the Hub; "" if they are in memory only.
        origin: what its files say about where it comes from.
    """

    name: str
    architecture: str
    parameters: int
    vocabulary: int
    context: int | None
    dtype: str
    place: str
    origin: Origin

    def __str__(self) -> str:
        context = "no declared context" if self.context is None else f"a context of {self.context:,} tokens"
        size = f"{self.parameters:,} parameters, {self.vocabulary:,} tokens, {context}"
        lines = {
            "architecture": f"{self.architecture}: {size}",
            "computes in": self.dtype,
            "provenance": self.origin.provenance,
            "licence": self.origin.licence,
            "quantisation": self.origin.quantisation,
            "caution": self.origin.caution,
            "read from": self.place or None,
        }
        return "\n".join([self.name, *(f"  {key:<14}{value}" for key, value in lines.items() if value is not None)])
