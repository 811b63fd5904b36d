"""SQL over tables of all formats, by DuckDB, which sees these tables and nothing else."""
