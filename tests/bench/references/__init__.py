"""What the subjects are measured against: each reference in a module of its own, run in the same rounds."""
