#!/bin/sh
# Installs a wheel of Reticent into a folder of its own, with the versions of requirements.lock, and tries it.
#
#     sh packaging/install.sh WHEEL LOCK PREFIX [cpu]
#
# The whole of it: extras train, audit and dp; EXTRAS names more (default: postgres). "cpu" takes torch's CPU build,
# "cu128" say that of CUDA 12.8, and "default" the one of the package index. Both recipes of images run this, and nothing
# else.
set -eu
wheel=$1 lock=$2 prefix=$3 torch=${4:-default}
[ "$torch" != default ] || torch=
python3 -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer"'
python3 -m venv "$prefix"
prefix=$(cd "$prefix" && pwd)
"$prefix/bin/python" -m pip install -q --disable-pip-version-check --no-cache-dir "uv>=0.9,<1"
"$prefix/bin/uv" pip install -q --python "$prefix/bin/python" --constraint "$lock" ${torch:+--torch-backend "$torch"} \
    "reticent[train,audit,dp,${EXTRAS:-postgres}] @ file://$(cd "$(dirname "$wheel")" && pwd)/$(basename "$wheel")"
"$prefix/bin/python" -m pip uninstall -q -y uv
cd /
"$prefix/bin/reticent" --version
"$prefix/bin/python" -c 'import reticent._rust, reticent.engine.index, reticent.job.pipeline, reticent.trainer.loop'
