"""The command `device-lab`: a report on a script that knows nothing of it."""
