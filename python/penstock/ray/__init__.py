"""Penstock on a Ray cluster: `penstock.ray.serve` (replicas behind OpenAI's routes) and `penstock.ray.data` (batches of rows)."""
