#!/usr/bin/env bash
# Clones the peers at the commits of sources.txt into FOLDER and makes FOLDER/environment for them.
# Run: benchmarks/peers/environment.sh FOLDER
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
folder="${1:?say where the clones go}"
mkdir -p "$folder"
while read -r name address commit; do
  [ -e "$folder/$name" ] || git clone --quiet "$address" "$folder/$name"
  git -C "$folder/$name" checkout --quiet "$commit"
done < "$here/sources.txt"
python3 -m venv "$folder/environment"
"$folder/environment/bin/pip" install --quiet --requirement "$here/requirements.txt"
echo "--sources $folder --python $folder/environment/bin/python"
