"""The stages of a job, one a file. Each has a function that yields its steps (`reticent.job.artefact.Step`).

Such a function is a generator: the code after a ``yield`` may open the result of that step. The function itself changes
nothing, because `reticent status` goes through the same plan. There, a result that does not exist yet raises an
`ArtifactError`.
"""
