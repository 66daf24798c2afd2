"""Penstock on a Ray cluster: `penstock.ray.serve` (replicas behind OpenAI's routes), `penstock.ray.split` (prefill and decode apart)
and `penstock.ray.data` (batches of rows)."""
