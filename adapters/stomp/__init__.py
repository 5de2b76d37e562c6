"""STOMP: events of a message broker."""
