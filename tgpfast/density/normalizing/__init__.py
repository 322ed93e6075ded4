"""The normalizer Z of a density with its error, by quadrature or by draws."""
