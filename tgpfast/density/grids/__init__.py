"""Rules and grids for integrals in one to three dimensions."""
