"""Where a receiver in accept mode keeps what it accepted, until a processor has handled it."""
