"""The reference control plane: what somebody who writes their own plane reads first.

It has a SQLite file of its own, and may import the definitions of the frames in `driver.core`, and nothing
else of ours.
"""
