"""The commands of `ddcl` that need both the experiments and the pictures: one file each, parsing and calling."""
