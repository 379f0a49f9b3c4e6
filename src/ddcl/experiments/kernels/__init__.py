"""How near the operation runs to what the machine allows, next to what one would use in its place."""
