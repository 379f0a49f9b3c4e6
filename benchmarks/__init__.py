"""How fast the library is and how much memory it needs, measured next to what one would write without it."""
