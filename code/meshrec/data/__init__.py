"""Sources and the columnar store: from text or a generator to memory-mapped columns and reproducible batches."""
