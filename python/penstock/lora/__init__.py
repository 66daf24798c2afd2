"""Adapters of requests."""
