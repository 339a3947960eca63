"""A round without replacement by itself."""

from locore.kernel.samplers.rounds import Round, abreast
from locore.samplers.swor import walk


def one_round(*args, **options) -> Round:
    """As `walk`."""
    (done,) = abreast([walk(*args, **options)])
    return done
