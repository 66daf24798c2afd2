"""What compare.py tells every peer's script: one run's threads, lengths and numbers of sequences."""
import argparse


def numbers(text):
    return [int(part) for part in text.split(",") if part]


def parser(description):
    options = argparse.ArgumentParser(description=description)
    options.add_argument("model")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--prefill", type=numbers, default=[512])
    options.add_argument("--decode", type=int, default=128)
    options.add_argument("--depths", type=numbers, default=[0])
    options.add_argument("--batches", type=numbers, default=[1])
    return options
