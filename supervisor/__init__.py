"""The way back from `unknown` that needs no operator: probes, the wall, and triage models.

May import `store`, and nothing else of ours.
"""
