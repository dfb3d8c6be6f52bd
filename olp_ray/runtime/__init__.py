"""Ray actors around the core: price shards, the coordinator, and the wiring between them. Nothing here decides."""
