"""Services that do not depend on the mathematics: memory, progress bars, warnings and records."""
