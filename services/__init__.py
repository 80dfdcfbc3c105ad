"""The service's parts; `app.py` wires them."""
