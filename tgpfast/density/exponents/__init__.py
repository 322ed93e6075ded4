"""The learned exponent f(x), summed term by term or by a non-uniform FFT."""
