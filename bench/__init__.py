"""The benchmark: this service beside its peers, everything compared in one run, interleaved.

Run by `flask --app app bench`. Nothing of the service imports it.
"""
