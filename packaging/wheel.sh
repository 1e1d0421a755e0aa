#!/bin/sh
# The wheel for manylinux_2_28 (x86_64 or aarch64), built on any Linux: RHEL 8 and all that is newer can load it.
#
#     sh packaging/wheel.sh [FOLDER]        # default: dist
#
# Needs Python 3.11 or newer, its venv, and a Rust toolchain. zig links against the symbols of glibc 2.28, whatever the
# glibc here is; maturin refuses a wheel that needs newer ones, and the last line looks at it once more.
set -eu
cd "$(dirname "$0")/.."
out=${1:-dist}
tools=${RETICENT_WHEEL_TOOLS:-target/wheel-tools}
[ -x "$tools/bin/maturin" ] || {
    python3 -m venv "$tools"
    "$tools/bin/python" -m pip install -q --disable-pip-version-check "maturin>=1.9,<2" "ziglang>=0.13,<0.16"
}
PATH="$(cd "$tools/bin" && pwd):$PATH"
export PATH
maturin build --release --locked --zig --compatibility manylinux_2_28 --interpreter "$tools/bin/python" --out "$out"
"$tools/bin/python" packaging/settle_wheel.py "$out"/reticent-*-manylinux_2_28_*.whl
exec "$tools/bin/python" packaging/check_wheel.py "$out"/reticent-*-manylinux_2_28_*.whl
