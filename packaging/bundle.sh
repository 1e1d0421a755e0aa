#!/bin/sh
# One archive for a machine without a network: the wheel, every wheel that it needs, the documentation.
#
#     sh packaging/bundle.sh                # dist/reticent-bundle.tar, from the wheel in dist/ and the pages in site/
#
# There: tar -xf reticent-bundle.tar && sh reticent-bundle/install.sh FOLDER
set -eu
cd "$(dirname "$0")/.."
wheel=$(ls -t dist/reticent-*.whl | head -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle=$work/reticent-bundle
mkdir -p "$bundle/wheels"
cp "$wheel" "$bundle/wheels/"
cp -R site "$bundle/docs"
cp requirements.lock LICENSE NOTICE "$bundle/"
# A package of the lock that has no wheel is built here: there is nothing to build it with over there.
"${PYTHON:-python3}" -m pip wheel -q --disable-pip-version-check --no-deps --require-hashes \
    -r requirements.lock -w "$bundle/wheels"
cat > "$bundle/install.sh" <<'END'
#!/bin/sh
# sh install.sh FOLDER: Reticent into a folder of its own, from this archive alone.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python3 -m venv "$1"
"$1/bin/python" -m pip install -q --disable-pip-version-check --no-index --no-deps "$here"/wheels/*.whl
"$1/bin/reticent" --version
END
tar -C "$work" -cf dist/reticent-bundle.tar reticent-bundle
ls -l dist/reticent-bundle.tar
