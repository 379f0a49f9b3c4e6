"""Objects in orbit: synthetic ones in four regimes, and the satellites of the UCS catalogue, as tables of features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ddcl.data import load_satellites

EARTH = 398600.4418
"""The gravitational parameter of the Earth, km^3 / s^2."""
REGIMES = ("LEO", "MEO", "GEO", "HEO")


class Regime(NamedTuple):
    """Where the objects of a class are."""

    axis: float
    """Semi-major axis, km."""
    eccentricity: float
    inclination: float
    """Degrees."""
    cross_section: float
    """Radar cross-section over the largest of the four."""
    noise: float
    """Standard deviation of each feature."""


@dataclass(frozen=True)
class Orbits:
    """The paper's synthetic objects; what it leaves open is a field here.

    The paper gives the axis of every regime, the eccentricity of LEO, GEO and HEO, the inclination of GEO and HEO and
    noise of 0.02 to 0.04. The rest is ours: MEO is circular at 55 degrees (GPS); LEO is at 53 degrees, where most
    satellites of the real catalogue are; cross-sections grow from LEO to GEO; LEO and HEO have the most noise. The
    noise is added to the features: so the first five principal components have about 99.5 % of the variance, as the
    paper says; noise on the orbital elements leaves them 99.9 %.
    """

    objects: int = 1600
    leo_inclination: float = 53.0
    nodes: Literal["anywhere", "one"] = "anywhere"
    """Right ascension of the ascending node: evenly from all around, or the same for all (noise is left)."""
    cross_sections: Literal["by regime", "equal"] = "by regime"

    def regimes(self) -> tuple[Regime, ...]:
        """The four regimes, in the order of :data:`REGIMES`."""
        leo, meo, geo, heo = (0.2, 0.4, 1.0, 0.6) if self.cross_sections == "by regime" else (1.0, 1.0, 1.0, 1.0)
        return (
            Regime(7200, 0.0, self.leo_inclination, leo, 0.04),
            Regime(20200, 0.0, 55.0, meo, 0.03),
            Regime(42164, 0.0, 0.0, geo, 0.02),
            Regime(26560, 0.74, 63.4, heo, 0.04),
        )


class Objects(NamedTuple):
    """A table of features with the regime of each row."""

    features: np.ndarray
    """(N, d)."""
    labels: np.ndarray
    """(N,): index in :data:`REGIMES`."""


def orbital_period(axis: np.ndarray | float) -> np.ndarray:
    """Kepler's third law, T = 2 pi sqrt(a^3 / mu), in seconds for kilometres.

    Example:
        >>> f"{orbital_period(42164) / 3600:.2f} hours"
        '23.93 hours'
    """
    return np.asarray(2 * np.pi * np.sqrt(np.asarray(axis, dtype=float) ** 3 / EARTH))


def synthetic_orbits(orbits: Orbits, seed: int) -> Objects:
    """The seven features a / a_max, e, sin i, cos i, sin Omega, RCS / RCS_max, T / T_max; as many objects per regime.

    Maxima are those of the regimes. Noise is added to every feature, so periods and axes of single objects are off by
    it; without it they follow Kepler's law.
    """
    if orbits.objects % len(REGIMES):
        raise ValueError(f"objects: got {orbits.objects}, expected a multiple of {len(REGIMES)}")
    random = np.random.default_rng(seed)
    regimes, count = orbits.regimes(), orbits.objects // len(REGIMES)
    widest = max(regime.axis for regime in regimes)
    tables = []
    for regime in regimes:
        angle = np.deg2rad(regime.inclination)
        nodes = random.uniform(0, 2 * np.pi, count) if orbits.nodes == "anywhere" else np.zeros(count)
        same = np.ones(count)
        features = np.stack(
            [
                same * regime.axis / widest,
                same * regime.eccentricity,
                same * np.sin(angle),
                same * np.cos(angle),
                np.sin(nodes),
                same * regime.cross_section,
                same * orbital_period(regime.axis) / orbital_period(widest),
            ],
            axis=1,
        )
        tables.append(features + regime.noise * random.standard_normal(features.shape))
    return Objects(np.concatenate(tables), np.repeat(np.arange(len(REGIMES)), count))


def catalogued_orbits() -> Objects:
    """The satellites of the UCS catalogue: a / a_max, e, sin i, cos i, T / T_max.

    It lists no ascending node and no radar cross-section. Rows without one of the four elements are left out.
    """
    found = load_satellites(("semi_major_axis_km", "eccentricity", "inclination_deg", "period_min"))
    axis, eccentricity, degrees, period = found.elements.values()
    angle = np.deg2rad(degrees)
    features = [axis / axis.max(), eccentricity, np.sin(angle), np.cos(angle), period / period.max()]
    return Objects(np.stack(features, axis=1), found.labels)
