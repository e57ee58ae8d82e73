# foreign.awk reads what `go test -v` printed of one package. When every test that failed also printed the mark, a
# pattern, of a known fault of another program's, it prints their names as a pattern for -run; else nothing. A line
# outside a test that says a run was cut short is no such fault.
/^=== (RUN|NAME|CONT) / { test = $3; sub(/\/.*/, "", test); next }
/^=== / { next }
/^--- FAIL: / { failed[++failures] = $3; next }
/^ *--- / { next }
/^panic: |^fatal error: |^e2e: |^signal: / { exit_early = 1 }
$0 ~ mark { marked[test] = 1 }
END {
	if (exit_early || !failures) exit
	for (i = 1; i <= failures; i++) {
		if (!marked[failed[i]]) exit
		names = names (i > 1 ? "|" : "") failed[i]
	}
	printf "^(%s)$\n", names
}
