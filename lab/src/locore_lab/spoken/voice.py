"""Spoken digits from a synthesiser of formants: every call another voice, tempo and intonation, all from one seed.

A word is a row of sounds. What the vocal cords make is a sum of harmonics, weighted by the resonances of the mouth; hissing is
noise in a band. Formants are near those of Peterson and Barney (1952) for men; a voice scales them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

RATE = 8000  # samples a second
FRAME = 80  # samples for which nothing changes: a hundredth of a second
HIGHEST = 3900.0  # Hz, of harmonics
BANDWIDTHS = np.array([70.0, 100.0, 150.0])

Samples = NDArray[np.float64]


@dataclass(frozen=True)
class Sound:
    """What is held for a while.

    Attributes:
        milliseconds: for how long, at a middling tempo.
        voiced: loudness of the vocal cords.
        formants: three resonances in Hz.
        hiss: loudness of noise.
        centre: of its band, in Hz.
        width: of its band, in Hz.
    """

    milliseconds: float
    voiced: float
    formants: tuple[float, float, float]
    hiss: float = 0.0
    centre: float = 3000.0
    width: float = 800.0


SOUNDS = {
    "iy": Sound(110, 1.0, (300, 2250, 3000)),
    "ih": Sound(90, 1.0, (400, 1950, 2550)),
    "eh": Sound(110, 1.0, (540, 1800, 2480)),
    "ah": Sound(120, 1.0, (640, 1200, 2400)),
    "ax": Sound(60, 0.8, (500, 1450, 2450)),
    "ao": Sound(120, 1.0, (570, 850, 2400)),
    "uw": Sound(140, 1.0, (310, 900, 2240)),
    "ow": Sound(100, 1.0, (500, 900, 2400)),
    "aa": Sound(100, 1.0, (720, 1150, 2450)),
    "ey": Sound(90, 1.0, (470, 1950, 2550)),
    "r": Sound(80, 0.7, (340, 1100, 1550)),
    "w": Sound(70, 0.6, (300, 650, 2200)),
    "n": Sound(80, 0.35, (270, 1500, 2500)),
    "v": Sound(60, 0.3, (260, 1100, 2300), 0.05, 3000, 1500),
    "z": Sound(80, 0.25, (260, 1600, 2500), 0.2, 3600, 500),
    "s": Sound(110, 0.0, (260, 1600, 2500), 0.4, 3700, 400),
    "f": Sound(100, 0.0, (300, 1000, 2300), 0.12, 2600, 1800),
    "th": Sound(90, 0.0, (320, 1300, 2500), 0.1, 3000, 1500),
    "closed": Sound(50, 0.0, (350, 1600, 2500)),
    "t": Sound(25, 0.0, (350, 1800, 2600), 0.5, 3400, 600),
    "k": Sound(30, 0.0, (350, 1700, 2400), 0.4, 2000, 400),
}
WORDS = (
    "z ih r ow uw",
    "w ah n",
    "closed t uw",
    "th r iy",
    "f ao r",
    "f aa iy v",
    "s ih closed k s",
    "s eh v ax n",
    "ey iy closed t",
    "n aa iy n",
)


@dataclass(frozen=True)
class Voice:
    """A speaker.

    Attributes:
        pitch: in Hz.
        size: by which formants are multiplied: above 1 for short throats.
        tempo: by which durations are multiplied.
        hiss: loudness of what hisses.
        pause: seconds between two words, at most.
        tilt: of the harmonics: the k-th has the loudness k^−tilt.
    """

    pitch: float
    size: float
    tempo: float
    hiss: float
    pause: float
    tilt: float

    @classmethod
    def random(cls, chance: Generator) -> Voice:
        """Anybody's."""
        return cls(
            pitch=float(np.exp(chance.uniform(np.log(85), np.log(250)))),
            size=chance.uniform(0.87, 1.2),
            tempo=chance.uniform(0.7, 1.1),
            hiss=chance.uniform(0.5, 1.5),
            pause=chance.uniform(0.0, 0.12),
            tilt=chance.uniform(0.6, 1.4),
        )


def spoken(digits: str, chance: Generator, voice: Voice | None = None) -> Samples:
    """Float[samples]: a voice that says some digits, as loud as 1 (root of the mean square)."""
    voice = Voice.random(chance) if voice is None else voice
    sounds = [Sound(0, 0.0, SOUNDS["ax"].formants)]
    for digit in digits:
        silent = replace(SOUNDS["closed"], milliseconds=1000 * voice.pause * chance.uniform() / voice.tempo)
        sounds += [*(_varied(SOUNDS[name], chance) for name in WORDS[int(digit)].split()), silent]
    frames = [max(1, round(sound.milliseconds * voice.tempo * RATE / 1000 / FRAME)) for sound in sounds]
    values = np.array([[s.voiced, s.hiss, s.centre, s.width, *s.formants] for s in sounds])
    held = _smoothed(np.repeat(values, frames, 0))
    wave: Samples = _cords(held, voice, chance) + voice.hiss * _hissed(held, chance)
    wave /= np.sqrt(np.mean(wave**2))
    return wave


def with_noise(wave: Samples, decibels: float, chance: Generator) -> Samples:
    """Behind steady noise of any colour, which is so many decibels softer."""
    size = len(wave)
    colour = np.fft.rfftfreq(size, 1 / RATE).clip(50) ** -chance.uniform(0.0, 0.7)
    noise = np.fft.irfft(np.fft.rfft(chance.standard_normal(size)) * colour, size)
    heard: Samples = wave + noise / np.sqrt(np.mean(noise**2)) * 10 ** (-decibels / 20)
    return heard


def _varied(sound: Sound, chance: Generator) -> Sound:
    """As somebody happens to say it."""
    first, second, third = sound.formants * chance.normal(1, 0.04, 3)
    length = sound.milliseconds * chance.uniform(0.75, 1.3)
    return replace(sound, milliseconds=length, formants=(first, second, third), voiced=sound.voiced * chance.uniform(0.7, 1.3))


def _smoothed(held: Samples) -> Samples:
    """The mouth moves from one sound to the next: a mean over five frames."""
    padded = np.pad(held, ((2, 2), (0, 0)), "edge")
    smooth: Samples = np.mean([padded[shift : shift + len(held)] for shift in range(5)], 0)
    return smooth


def _cords(held: Samples, voice: Voice, chance: Generator) -> Samples:
    """Float[samples]: the harmonics."""
    count = len(held)
    falls = np.linspace(chance.uniform(1.0, 1.2), chance.uniform(0.8, 1.0), count)
    pitch = voice.pitch * falls * np.exp(np.cumsum(chance.normal(0, 0.004, count)))
    order = np.arange(1, int(HIGHEST / pitch.min()) + 1)
    places = pitch[:, None] * order
    ratio = places[..., None] / (held[:, None, 4:] * voice.size)
    gains = ((1 - ratio**2) ** 2 + (ratio * BANDWIDTHS / (held[:, None, 4:] * voice.size)) ** 2 + 1e-6) ** -0.5
    loud = held[:, :1] * gains.prod(-1) * order**-voice.tilt * (places < HIGHEST)
    loud *= held[:, :1] / np.maximum(np.sqrt((loud**2).sum(1, keepdims=True)), 1e-9)  # a formant at a harmonic is not louder
    phase = np.cumsum(_between(pitch)) / RATE % 1
    waves = np.sin((2 * np.pi * phase[:, None] * order).astype(np.float32)).reshape(count, FRAME, -1)
    now, after = (np.einsum("tfk,tk->tf", waves, part.astype(np.float32)) for part in (loud, _next(loud)))
    share = np.arange(FRAME) / FRAME
    wave: Samples = (now * (1 - share) + after * share).ravel()
    return wave


def _hissed(held: Samples, chance: Generator) -> Samples:
    """Float[samples]: noise in the band of each frame, in windows that overlap by half."""
    windows = np.fft.rfft(chance.standard_normal((len(held), 2 * FRAME)))
    places = np.fft.rfftfreq(2 * FRAME, 1 / RATE)
    band = np.exp(-(((places - held[:, 2:3]) / held[:, 3:4]) ** 2))
    shaped = np.fft.irfft(windows * band) * np.hanning(2 * FRAME) * held[:, 1:2]
    wave = np.zeros((len(held) + 1) * FRAME)
    for half in range(2):
        wave[half * FRAME : (len(held) + half) * FRAME] += shaped[:, half * FRAME : (half + 1) * FRAME].ravel()
    return wave[: len(held) * FRAME]


def _between(values: Samples) -> Samples:
    """Values of frames as values of samples, in straight lines."""
    share = np.arange(FRAME) / FRAME
    return (values[:, None] * (1 - share) + _next(values)[:, None] * share).ravel()


def _next(values: Samples) -> Samples:
    """Of each frame, what the next one has."""
    return np.concatenate([values[1:], values[-1:]])
