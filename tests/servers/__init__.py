"""Small MCP servers that tests run as real processes; standard library only, so that they start fast."""
