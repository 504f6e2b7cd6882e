"""The contract both sides import: tensor names, request types, event types and their codec.

Standard library only, so that a client installs nothing heavy and the server trusts the very same definitions.
"""
