"""What tests of pages share: sizes of screens, texts that break careless pages, and what can be measured of a page."""

from __future__ import annotations

WIDE, NARROW = (1280, 900), (390, 844)
"""Of a laptop and a phone."""

HOSTILE = (
    "<script>window.harm = 1; alert('harm')</script> my card",
    '</script></style><img src=x onerror="window.harm = 1"> the cat',
    "quotes \" ' ` and & &lt; {{ 7 * 7 }} ${7 * 7} my card",
    "\u202eright to left override\u202c שלום עולם مرحبا the cat",
    "control \u0007 \u001b[31m characters \u2028 and \u2029 my card",
    "long " + "card " * 20_000,
)
"""Texts that break pages which take them for anything but text."""


def contrast(page, selector):
    """Of a text against what it stands on, as the accessibility guidelines define it."""
    return page.evaluate(
        """(selector) => {
            const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
            const light = (colour) => {
                const [r, g, b] = parts(colour).slice(0, 3).map((one) => {
                    const c = one / 255;
                    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
                });
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const element = document.querySelector(selector);
            let behind = element;
            while (behind && parts(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
            const both = [light(getComputedStyle(element).color), light(getComputedStyle(behind).backgroundColor)];
            return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
        }""",
        selector,
    )


def fits(page):
    """Whether nothing reaches over the right edge."""
    return page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
