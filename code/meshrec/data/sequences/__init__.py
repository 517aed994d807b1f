"""Users' items in the order of time: from text of any common kind to a memory-mapped store and batches for next-item models.

`formats` reads a line, `read` a file, `arrange` puts events into order, `store` keeps them, `prepare` does all of this, and
`batches` says which rank sees which users.
"""
