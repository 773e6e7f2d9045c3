"""The durable task engine: publications, lanes and leases on Redis."""
