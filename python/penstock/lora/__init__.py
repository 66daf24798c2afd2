"""Adapters. Not supported yet: every call that is given one refuses."""
