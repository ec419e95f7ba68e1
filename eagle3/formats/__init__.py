"""Checkpoints as other projects store them, and ours: read strictly, written exactly.

`stored.open_stored` reads the header of any folder and tells the format by its content,
`export.write_stored` writes one, `facts.describe` says in words what a folder holds.
The tables of names are in `names`, what a config.json means in `configs`. [Ours]
"""
