"""Does training come to rest, and how fast may each part move: curvature of the coupled system, and what descends."""

from ddcl.functional.stability.descent import (
    DescentStep,
    DescentTrace,
    barrier_strength,
    lyapunov,
    temperature_slope,
)
from ddcl.functional.stability.spectrum import Spectrum, coupled_jacobian, coupled_spectrum, descended_loss
from ddcl.functional.stability.time_scales import RatioBound, TimeScales, ratio_bound, time_scales

__all__ = [
    "DescentStep",
    "DescentTrace",
    "RatioBound",
    "Spectrum",
    "TimeScales",
    "barrier_strength",
    "coupled_jacobian",
    "coupled_spectrum",
    "descended_loss",
    "lyapunov",
    "ratio_bound",
    "temperature_slope",
    "time_scales",
]
