"""Paths of the C++ headers and the CMake package in this package."""
from __future__ import annotations

import os

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def get_include() -> str:
    """Returns the folder of the headers `penstock/*.h`, for the compiler's flag -I."""
    return os.path.join(_PACKAGE, "include")


def get_cmake_dir() -> str:
    """Returns the folder of the CMake package, for `-Dpenstock_DIR=`: `find_package(penstock)` gives the target
    `penstock::penstock`."""
    return os.path.join(_PACKAGE, "lib", "cmake", "penstock")
