#!/usr/bin/env bash
# fuzz.sh runs the fuzz targets of every module, one after the other: go fuzz no more than one at a time. It goes on
# after one that fails, and exits 1 at its end if any did.
#
#   FUZZTIME  how long each runs, as -fuzztime of go test: 30s by default; 100000x counts inputs
#   FUZZ      which: a regular expression for their whole names, such as FuzzParse or Fuzz.*Device.*; all by default
#
# go writes an input that fails into testdata/fuzz/TARGET beside the test, where every run of the tests tries it from
# then on: commit it with the mend. Inputs that merely reach new code stay in go's cache.
set -euo pipefail
cd "$(dirname "$0")/.."

export GOFLAGS='-buildvcs=false -trimpath' CGO_ENABLED=0

time=${FUZZTIME:-30s}
filter=${FUZZ:-.*}

# Modules of their own that have targets, beside the main one; see dev/test.sh.
modules=(cmd/virt-local cmd/virt-local-csi)

# targets lists the targets that the filter has, as MODULE DIRECTORY TARGET; the directory is the module's.
targets() {
	local file name module
	git ls-files -co --exclude-standard -- '*_test.go' |
		{ xargs grep -sEo '^func Fuzz[A-Z0-9_][A-Za-z0-9_]*\(' || true; } | # its status says that some files have none
		while IFS=: read -r file name; do
			name=${name#func } name=${name%(}
			[[ $name =~ ^($filter)$ ]] || continue
			local at=.
			for module in "${modules[@]}"; do
				if [[ $file == "$module"/* ]]; then at=$module; fi
			done
			file=${file#"$at"/}
			echo "$at ./$(dirname "$file") $name"
		done | sort
}

# deadline_only says that go's own stopwatch is all that a run failed by: go up to 1.26 may take the end of
# -fuzztime for a failure on a busy machine (https://go.dev/issue/75804). Such a run has no failing input.
deadline_only() {
	grep -qx '    context deadline exceeded' "$1" &&
		! grep -qE 'Failing input|seed corpus entry|^panic:|^fatal error:' "$1"
}

list=$(targets)
if [ -z "$list" ]; then
	echo "fuzz.sh: no target is named $filter; \`grep -rn '^func Fuzz' --include='*_test.go' .\` lists them" >&2
	exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=()
while read -r module dir name; do
	where=$module/${dir#./}
	where=${where#./}
	dev/step.sh "Fuzzing: $where $name, $time"
	status=0
	go -C "$module" test -run='^$' -fuzz="^$name\$" -fuzztime="$time" "$dir" >"$log" 2>&1 </dev/null || status=$?
	did=$(grep -o 'execs: [0-9]*' "$log" | tail -n 1) || did='execs: 0'
	if [ $status -eq 0 ] || deadline_only "$log"; then
		echo "ok    $where $name, $did"
		continue
	fi
	cat "$log"
	# Of a new input go says the file, of one that was there before its name.
	input=$(sed -nE -e 's,.*Failing input written to (testdata/fuzz/[^ ]+).*,\1,p' \
		-e 's,.*failure while testing seed corpus entry: ([^ ]+).*,testdata/fuzz/\1,p' "$log" | tail -n 1)
	line="$where $name, $did"
	if [ -n "$input" ] && [ -e "$where/$input" ]; then
		line+=", by $where/$input"
	elif [ -n "$input" ]; then
		line+=", by an f.Add of the target, ${input##*/}"
	fi
	echo "FAIL  $line"
	failed+=("$line")
done <<<"$list"

if [ ${#failed[@]} -gt 0 ]; then
	printf '\n== %d failed; commit the inputs with what mends them:\n' ${#failed[@]}
	printf '   %s\n' "${failed[@]}"
	exit 1
fi
