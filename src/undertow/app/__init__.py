"""Pages that a person works with, served to this machine alone.

Knows run folders as `undertow.runs.folder.storage` reads them; knows nothing about models, scoring or how a number was got.
"""
