"""Publishing: plan, send and read back site ads; stop old configurations; detect rival daemons."""
