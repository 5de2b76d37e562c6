"""STOMP client: events of a message broker."""
