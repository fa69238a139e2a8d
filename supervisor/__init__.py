"""The supervisor: what becomes of an unknown outcome where no evidence and no person settles it.

May import `store`, and nothing else of ours; what it needs of the driver is handed to it
(`supervisor.material.Disclosure`, `supervisor.triage.Outside`).

* `material` reads what the journal knows about one run, `wall` makes of it the one bounded text that a model
  is shown, and `quoting` holds that nothing in it can be taken for anything but data.
* `prompt` is what a model is told, `verdict` what is made of its answer, and `models` who can be asked.
* `recording` writes a verdict and all its rulings in one transaction, where they still settle something.
* `triage` decides whether a run is due, and what it may cost; `loop` has runs looked at, a few at once.
"""
