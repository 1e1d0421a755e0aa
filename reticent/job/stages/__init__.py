"""The stages of a job, one a file. Each has a function that yields the stage's steps (`reticent.job.artefact.Step`).

Such a function is a generator: what comes after a ``yield`` may open what the step has made. It changes nothing itself,
as a plan is also gone through only to be looked at. Results that are not there yet then raise an error of ours.
"""
