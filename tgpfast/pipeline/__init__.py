"""What strings the other folders together: `fit`, `update`, `fit_groups` and `warmup`."""
