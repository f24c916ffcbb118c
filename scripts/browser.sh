#!/usr/bin/env bash
# Make sure that there is a browser for the scenarios: the one that is named, one on the path, or in CI a new one.
set -euo pipefail
for name in "${PENSTOCK_CHROMIUM:-}" chromium chromium-browser google-chrome; do
  if [ -n "$name" ] && command -v "$name" > /dev/null; then exit 0; fi
done
if [ "${CI:-}" != true ]; then
  echo "browser: no chromium here; the scenarios are skipped (on Debian: apt-get install chromium)" >&2
  exit 0
fi
echo "browser: installing chromium"
apt-get install -y --no-install-recommends chromium > build/chromium.log 2>&1 ||
  { apt-get update > /dev/null && apt-get install -y --no-install-recommends chromium > build/chromium.log 2>&1; } ||
  { tail -5 build/chromium.log >&2; exit 1; }
