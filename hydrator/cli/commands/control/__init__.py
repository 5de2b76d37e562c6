"""Commands that an operator gives to the daemon or to the queues."""
