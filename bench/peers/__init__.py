"""Other job queues, each in an environment of its own: their installation, their settings and their adapters."""
