"""What the daemon measures of itself, as OpenMetrics. May import `store`."""
