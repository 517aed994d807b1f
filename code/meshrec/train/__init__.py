"""One block: every cell trained, evaluated and recorded."""
