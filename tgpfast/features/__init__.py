"""Features of rows: how they are drawn, and how they are evaluated."""
