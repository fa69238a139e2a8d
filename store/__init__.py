"""The journal: lifecycle, records, events, SQL, writer and queries.

The only place that touches the journal file. Imports nothing of ours.
"""
