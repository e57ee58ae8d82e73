# failed.awk reads what `go test -v` printed and says once more, at its end, which tests failed and the last that each
# said: where output is cut at its head, the tail tells all.
/^=== (RUN|NAME|CONT) / { test = $3; next }
/^=== / { next }
/^ *--- FAIL: / { failed[++failures] = $3; took[$3] = $4; next }
/^ *--- (PASS|SKIP): / { next }
/^panic: |^fatal error: |^e2e: |^signal: / { loose[++looses] = $0 }
/ as it was left:$/ { described[test] = 1 }
/^\trunning tests:$/ { running = 1; loose[++looses] = $0; next } # of a panic: the time for all tests is over
running && /^\t\t/ { loose[++looses] = $0; next }
{ running = 0 }
test != "" && !described[test] { said[test, ++count[test]] = $0 }
END {
	for (i = 1; i <= failures; i++) {
		t = failed[i]
		printf "\n== Failed: %s %s\n", t, took[t]
		from = count[t] > lines ? count[t] - lines + 1 : 1
		for (j = from; j <= count[t]; j++) print said[t, j]
	}
	for (i = 1; i <= looses; i++) print loose[i]
	printf "\n== %d failed:", failures
	for (i = 1; i <= failures; i++) printf " %s", failed[i]
	print ""
}
