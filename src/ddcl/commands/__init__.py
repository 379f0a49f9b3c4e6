"""The commands of `ddcl` that stand on several floors: one file each, parsing and calling."""
