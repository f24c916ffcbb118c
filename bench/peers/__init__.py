"""Other job queues, each in an environment of its own: how they are installed, started and asked."""
