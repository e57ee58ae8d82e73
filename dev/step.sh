#!/bin/sh
# step.sh TEXT... says on stderr what begins now.
if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then
	printf '\033[1m== %s %s\033[0m\n' "$(date +%T)" "$*" >&2
else
	printf '== %s %s\n' "$(date +%T)" "$*" >&2
fi
