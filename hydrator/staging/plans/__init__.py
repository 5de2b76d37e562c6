"""Plans of one step: stage requests, pins, and the upkeep of requests. Pure."""
