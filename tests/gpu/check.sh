#!/usr/bin/env bash
# The CUDA path on one GPU (on two, real ranks too), against the float64 model on the CPU. Under five minutes.
# usage: tests/gpu/check.sh [--any-device]   the option runs the same checks on whatever there is, to test this script itself
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
python=$root/.venv/bin/python
[ -x "$python" ] || python=${PYTHON:-python3}
PYTHONPATH="$root/code:$root/tests${PYTHONPATH:+:$PYTHONPATH}" exec timeout 300 "$python" "$root/tests/gpu/check.py" "$@"
