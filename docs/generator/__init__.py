"""Makes the pages of the reference from the code, so that they have every command, option and
key.
"""
