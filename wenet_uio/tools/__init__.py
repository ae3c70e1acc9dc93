"""Commands of data preparation, checking and scoring; the command line `wenet-uio` and the scripts
of the folder `tools` start them.
"""
