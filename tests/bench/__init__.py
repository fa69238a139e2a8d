"""`make bench`: what a call costs, measured on the real daemon, next to what the disk can do in the same run.

Reads no number from anywhere: everything that it prints was measured by the run that prints it. The daemon is
a process of its own, driven over its WebSocket by a plane in the bench's process; on a small machine the two
compete for the processor, so the rates are what the machine gives to both together.
"""
