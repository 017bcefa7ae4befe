"""Whether the limit held, asked of the rows: what `cupo audit` looks for, and what `cupo worker` watches."""
