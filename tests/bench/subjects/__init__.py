"""What is measured: parts of effectd, and the whole of it, each in a module of its own."""
