"""Convert models of other packages to models of this one."""
