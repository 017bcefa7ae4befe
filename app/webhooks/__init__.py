"""Telling other systems what happened: signed HTTP calls to the endpoints that they have named."""
