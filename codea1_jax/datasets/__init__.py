"""Published datasets -> our Problems, by one small file a format.

A format's `draft` reads a row without running anything; `making` has the
sandbox run the row's solution on the row's own tests and makes a problem of
what passes; `overlap` finds repeated and leaked problems; `survey` does all of
that for a file.
"""
